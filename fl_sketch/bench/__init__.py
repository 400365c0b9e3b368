"""Speed, as ratios of medians taken in one run; nothing here is a test."""
