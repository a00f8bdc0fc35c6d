``make soak`` runs the router under mixed traffic while clients leave, replicas are killed and exchanged, and fails when a request is lost or sent twice.
