Retiring a replica releases its sessions at once and stops it when its requests have ended or ``--drain-timeout`` has passed.
