"""Compares compressors at a hundredth and a thousandth of the bytes."""
