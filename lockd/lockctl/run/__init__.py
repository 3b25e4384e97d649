"""`lockctl run`: a command, with everything that it starts, lives no longer than its lease."""
