"""Runs between hosts of a lab whose links and addresses fail, and how soon they are whole again."""
