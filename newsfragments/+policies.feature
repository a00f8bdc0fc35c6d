``--policy`` chooses among thirteen routing policies, and answers say which replica was chosen and why.
