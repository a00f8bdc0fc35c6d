The simulated replica takes ``--attention-span``, ``--context-ns`` and ``--stream-interval``, answers ``POST /reset_prefix_cache``, and keeps its time when its timers are late.
