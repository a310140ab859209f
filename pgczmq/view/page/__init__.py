"""One HTML page about runs, for any browser."""
