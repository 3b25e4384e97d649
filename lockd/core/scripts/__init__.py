"""Scripts of apps are recognised, never run: which operation on a lock is this Lua source?

A script is read into a tree (tokens, parser, syntax). Then what it would ask of Redis is followed for each
state in which its key may be: free, with the script's own value, or with another's (evaluation, keyspace).
What it would change and answer in each state is its meaning (meaning), and some meanings are operations on a
lock (recognition, operations). So spelling does not matter, and a script that can't be followed to its end is
not recognised.
"""
