"""Strangers that send a live run whatever there is to be sent, and what that changes: nothing."""
