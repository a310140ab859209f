"""How fast vectors get from a master to its workers and back: this program against what else there is."""
