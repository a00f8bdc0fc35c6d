"""The HTTP front: site, errors, and the Klein resource tree."""
