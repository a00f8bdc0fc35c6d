"""How Sphinx builds the manual; every warning is an error (``make docs``)."""

from twisted_router import __version__

project = "pypto-router"
copyright = "the pypto-router authors"
release = version = __version__
html_theme = "furo"
html_title = f"pypto-router {release}"
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False
