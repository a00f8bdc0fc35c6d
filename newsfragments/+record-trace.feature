``--record-trace FILE`` records live traffic, without its text, for ``pypto-router lab --replay``.
