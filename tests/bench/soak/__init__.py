"""An hour of mixed use, and whether the agent's memory stays as it is.

    python -m tests.bench.soak [--minutes 60] [--rate 30] [--json FILE]

First all that an agent remembers is filled. Then several apps do all that apps do (tests/harness/uses.py:
every command is in it), each so many uses a second, in an order of its own; they reconnect, and processes
come and go. One user asks for long replies and reads none, and Prometheus reads the metrics. The exit status
is 1 when the memory has grown, when less was done than should have been, or when more failed than may.

curve.py is what is made of the figures; work.py the apps; __main__.py runs it.
"""
