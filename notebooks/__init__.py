"""Notebooks: scripts in the percent format, and what is built from them."""
