Large uploads no longer keep other requests waiting: they go to the replica in pieces, and what it says before it closes on one is heard.
