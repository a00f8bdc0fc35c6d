"""How Sphinx builds the manual; every warning is an error (``make docs``)."""

import sys
from pathlib import Path

from twisted_router import __version__

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["slots"]

project = "pypto-router"
copyright = "the pypto-router authors"
release = version = __version__
html_theme = "furo"
html_title = f"pypto-router {release}"
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False
