"""Compares methods where clients are many and keep nothing, by bytes."""
