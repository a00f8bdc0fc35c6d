``hosts`` are cut into slots, local machines first; ``--initial-replicas``, ``--max-replicas`` and ``--launch-timeout`` say how many replicas the router launches on them and how long one may load.
