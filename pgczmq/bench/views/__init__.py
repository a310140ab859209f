"""What it costs a run to be looked at."""
