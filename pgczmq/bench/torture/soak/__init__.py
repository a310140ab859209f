"""Real programs for minutes, killed, stopped and started again at random; and the audit of what they leave."""
