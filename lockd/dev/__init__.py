"""`lockd dev`: masters and an agent on one machine, as child processes, for development and for tests."""
