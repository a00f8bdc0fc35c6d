"""Tells twistd about ``pypto-router``; imported by every ``twistd --help``, so it imports nothing of ours."""

from twisted.application.service import ServiceMaker

pypto_router = ServiceMaker(
    "pypto-router",
    "twisted_router.tap",
    "Route OpenAI-compatible requests over several replicas, keeping conversations on their KV cache.",
    "pypto-router",
)
