"""Datasets, who holds which samples, who takes part, and in which batches."""
