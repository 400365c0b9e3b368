"""The experiments of Chen et al., arXiv:2411.06770."""
