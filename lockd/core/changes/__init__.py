"""Changes of who the members are, step by step: forming a cluster, admitting a master, bringing one up to
date, beginning anew, upgrading identities (rule 8). Operators ask for them; nothing else writes identities.

A change is a generator. It yields what is to be done next (steps.py), and gets what came of it; it ends with
its Progress, or with NotPossible. So it may end after each of its steps, as it does where its agent dies, and
whoever carries it out, over sockets or on virtual time, has no say in their order.
"""
