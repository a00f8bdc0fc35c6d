"""The pypto-router command and its subcommands."""
