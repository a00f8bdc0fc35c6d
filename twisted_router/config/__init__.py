"""From a configuration file and a command line to frozen values."""
