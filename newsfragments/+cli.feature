Two programs: ``pypto-serving-router`` runs the router in the foreground, ``pypto-router`` has ``demo``, ``sim``, ``check-config`` and ``serve``; a bad flag is one line with the nearest good one.
