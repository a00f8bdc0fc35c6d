``twistd pypto-router`` answers a command line or a file that cannot be used with the complaint alone, without its usage text before it.
