"""Haddadpour, Karimi, Li, Li, arXiv:2008.04975: `statements`, `studies`."""
