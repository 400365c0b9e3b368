"""Sketches where clients are many and keep nothing: all families, by bytes."""
