"""Scripts of apps are recognised, never run: which operation on a lock is this Lua source?

A script is read into a tree (tokens, parser, syntax), and what it would ask of Redis is followed in each
state that its key can be found in (evaluation, keyspace): free, with the script's own value, with another's.
What it would change and answer in each of them is its meaning (meaning), and some meanings are operations on
a lock (recognition, operations). So spelling does not matter, and what can't be followed to its end is not
recognised.
"""
