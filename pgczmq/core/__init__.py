"""The pure part: mathematics and decisions. NumPy and the standard library only; no clock, no input or output."""
