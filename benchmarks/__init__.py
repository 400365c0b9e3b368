"""Benchmarks: speed as ratios of medians taken in one run; see README.md."""
