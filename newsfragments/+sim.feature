A simulated replica, ``pypto-router sim``, answers like an OpenAI-compatible engine with a real prefix cache and faults on demand.
