"""`python -m lockd`: the same as the command `lockd`."""

from __future__ import annotations

from lockd.cli import main

if __name__ == "__main__":
    main(prog_name="lockd")
