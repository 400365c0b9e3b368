"""Compares methods on models that are trained to a published mark."""
