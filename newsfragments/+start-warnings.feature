Warnings about the configuration, and about ``hosts`` without an admin token, are logged at the start; a certificate file that cannot be used ends it with one line.
