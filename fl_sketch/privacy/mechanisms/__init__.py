"""Private mechanisms in JAX: bounds, integer grids, noise, and their sums."""
