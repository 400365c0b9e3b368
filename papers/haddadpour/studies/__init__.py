"""The experiments of Haddadpour et al., arXiv:2008.04975."""
