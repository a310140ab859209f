"""Joins configuration, training and a driver into things a person can ask for."""
