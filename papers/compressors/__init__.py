"""Compares compressors by bytes: federations without state, and few workers."""
