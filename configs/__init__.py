"""Experiments as documents: source, command, expected number and time."""
