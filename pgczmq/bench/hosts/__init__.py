"""Several hosts on one machine, each with a network of its own, and this program on them."""
