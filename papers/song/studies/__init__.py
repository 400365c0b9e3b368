"""The experiments of Song et al., arXiv:2210.08371."""
