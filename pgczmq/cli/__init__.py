"""What people type: parse, call one function, print the error, set the exit code."""
