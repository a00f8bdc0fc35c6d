"""pypto-router: one process in front of OpenAI-compatible model servers."""

__version__ = "0.1.0"
