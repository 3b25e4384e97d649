"""What others pay for a user who means ill: an agent, victims beside it, and a row for each attack.

    python -m tests.bench.attack [--only NAME] [--full] [--scale 1.0] [--json FILE]

As root, since attackers and victims are users of their own. The table shows for each attack what the victims
have lost, what failed, how long their pairs of LOCK and UNLOCK and their PINGs took, and the memory of the
agent. Each figure has a bound (bounds.py, and in the rows); the exit status is 1 when one is exceeded.

rows/ has the attacks; victims.py what is done to whom; people.py processes of other users; host.py the agent;
row.py what a row is and how it is measured; table.py what is shown.
"""
