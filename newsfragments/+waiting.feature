``--queue-size`` lets requests wait in the router while no replica is ready, and ``--max-outstanding`` bounds what one replica is given.
