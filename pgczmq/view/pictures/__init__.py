"""Runs and comparisons as pictures: numbers come in, figures go out. Importing most of it imports matplotlib."""
