"""Redis's own lock commands, as lock operations: what libraries and snippets send that know of one Redis.

Each command, and each script that is recognised, is an operation of core/scripts/operations.py, and carried
out here by the same fan-out as a LOCK: an acquire is a try in its resource's line (`plain_locks`), a release
or an extension names the app's value, and what is read is what this agent holds or the masters show
(`looking`). What the commands are: commands/plain.py.
"""
