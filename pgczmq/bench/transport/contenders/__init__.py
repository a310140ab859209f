"""Who takes part in the transport bench: each file is a program of its own, run as a process for one turn."""
