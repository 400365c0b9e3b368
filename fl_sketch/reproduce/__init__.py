"""The experiments of the papers, each with its claims and a verdict."""
