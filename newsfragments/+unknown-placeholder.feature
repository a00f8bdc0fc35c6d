``check-config`` and the log name a placeholder of a host's templates that there is none of, such as ``{modl}``.
