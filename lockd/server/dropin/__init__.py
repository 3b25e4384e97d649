"""Redis's own lock commands as lock operations: what libraries and snippets send that were written for one
Redis.

Each command, and each script that is recognised, is an operation of core/scripts/operations.py. It is carried
out here by the same fan-out as a LOCK. An acquire is a try in its resource's line (`plain_locks`), a release
or an extension names the app's value, and a read returns what this agent holds or the masters show
(`looking`). The commands are in commands/plain.py.
"""
