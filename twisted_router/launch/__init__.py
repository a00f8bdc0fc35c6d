"""Starting and stopping replica processes, here and on other machines."""
