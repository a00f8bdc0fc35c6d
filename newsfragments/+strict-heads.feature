Request heads are read strictly: folded lines, doubtful Transfer-Encoding, impossible Host values or lengths and tunnels are refused; requests sent ahead wait while their client does not read.
