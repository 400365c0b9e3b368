"""Pages of the site that are generated from code and from stored results."""
