"""The laboratory: the policies of the product on simulated replicas, in simulated time."""
