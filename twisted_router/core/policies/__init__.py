"""One module for each routing policy."""
