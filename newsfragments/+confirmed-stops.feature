A slot is free only after a confirmed stop: the stop step succeeded, the address refuses connections and the slot's lock is free; otherwise it stays reserved until a person releases it.
