"""`lockctl run`: a command that lives no longer than its lease, with all that it starts."""
