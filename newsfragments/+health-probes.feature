Replicas are probed concurrently every ``--health-interval``; a hanging probe delays no other and an answer that is late but good counts as good.
