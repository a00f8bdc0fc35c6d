A restarted router takes every recorded slot back before it asks anything, adopts the replicas that answer, and launches only what is missing.
