"""Measurements of the router beside its peers; see ``python -m bench --help``."""
