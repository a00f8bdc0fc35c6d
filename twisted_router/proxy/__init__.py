"""The data path: request head to replica, answer to client."""
