The router raises its limit on open files, serves at most ``--max-connections`` clients at once (by default as many as there are descriptors for) and answers the others with 503.
