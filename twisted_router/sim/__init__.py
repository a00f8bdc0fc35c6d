"""A simulated replica: a program of its own that answers like a model server."""
