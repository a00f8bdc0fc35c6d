``pypto-router demo`` runs the router before simulated replicas, prints the commands to try, and shows each request with its replica and affinity.
