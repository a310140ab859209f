"""What this program costs, measured; and comparisons of schemes."""
