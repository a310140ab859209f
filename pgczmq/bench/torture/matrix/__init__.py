"""Every state of a worker and of a master, and everything that can happen to it there."""
