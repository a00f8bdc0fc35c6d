When the TLS handshake of a health probe fails, the log says why.
