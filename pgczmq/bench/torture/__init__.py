"""Runs that are broken on purpose, and what comes of them."""
