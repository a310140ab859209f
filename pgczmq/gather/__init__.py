"""Records -> Picture: what is known of a run, gathered record by record in bounded memory."""
