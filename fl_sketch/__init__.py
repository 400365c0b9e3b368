"""Federated learning in which clients send a random sketch of their update."""
