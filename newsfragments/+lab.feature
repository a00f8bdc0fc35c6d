``pypto-router lab`` compares routing policies on simulated replicas, with nineteen workloads or with a trace of your own traffic.
