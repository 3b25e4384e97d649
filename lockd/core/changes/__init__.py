"""Changes of the members, step by step: forming a cluster, admitting a master, bringing one up to date,
forming the cluster again, upgrading identities (rule 8). Operators ask for them; nothing else writes
identities.

A change is a generator. It yields its next step (steps.py) and gets the result; it ends with its Progress, or
with NotPossible. So it may end after each of its steps, as it does when its agent dies. And the driver, over
sockets or on virtual time, has no influence on their order.
"""
