"""A run on a terminal while it goes on, or as it went: the dashboard, its keys, and lines where there is no screen."""
