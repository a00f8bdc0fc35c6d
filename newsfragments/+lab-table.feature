``pypto-router lab`` runs on all processors, marks the best policy of each row, and closes with what is expected of ``work`` and whether it holds.
