"""Where the time of a real task's steps goes."""
