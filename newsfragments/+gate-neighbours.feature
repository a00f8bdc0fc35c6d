The working-set gate takes a replica's cache to be as large as the others' until its own answers have shown how large it is.
