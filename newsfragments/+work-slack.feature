``--affinity-slack`` bounds policy ``work`` as well where it is given.
