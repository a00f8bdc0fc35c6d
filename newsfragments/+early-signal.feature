A signal that comes while ``pypto-serving-router`` still reads its configuration ends it with a line and code 0.
