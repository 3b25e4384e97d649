"""`python -m lockd.lockctl`: the same as the command `lockctl`."""

from __future__ import annotations

from lockd.lockctl.main import main

if __name__ == "__main__":
    main(prog_name="lockctl")
