Configuration files may be JSON or YAML (``.yaml``, ``.yml``), by one schema (``etc/fleet.schema.json``), with samples for each use in ``etc/``.
