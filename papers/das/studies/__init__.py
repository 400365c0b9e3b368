"""The experiments of Das et al., arXiv:2106.07094."""
