"""pyproject.toml says all of an ordinary build but one thing: runbooks are written in alerts/, and brought
into the package for `lockctl runbook`. With LOCKD_COMPILED=1 it is a wheel of the same sources in
which what each lock passes through is compiled, too (mypyc). That takes a C compiler, Python's headers and
mypy, and is for this Python and machine alone."""

import os
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HOT = (
    "lockd/clock.py",
    "lockd/core/**/*.py",
    "lockd/masters/fleet.py",
    "lockd/masters/framing.py",
    "lockd/masters/link.py",
    "lockd/masters/scripts.py",
    "lockd/metrics/counts.py",
    "lockd/server/commands/arguments.py",
    "lockd/server/commands/checks.py",
    "lockd/server/commands/command.py",
    "lockd/server/commands/leases.py",
    "lockd/server/commands/table.py",
    "lockd/server/deliveries.py",
    "lockd/server/dropin/*.py",
    "lockd/server/joint_requests.py",
    "lockd/server/lease_requests.py",
    "lockd/server/losses.py",
    "lockd/server/processes.py",
    "lockd/server/quotas.py",
    "lockd/server/resp/requests.py",
    "lockd/server/session.py",
)
# Enumerations and tables that are made in ways that mypyc doesn't know; no lock passes through scripts.
BUT = ("lockd/core/errors.py", *glob("lockd/core/scripts/*.py"))

RUNBOOKS = sorted(glob("alerts/runbooks/*.md"))


class WithRunbooks(build_py):
    """In the repository, and in an editable install of it, the command finds them where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = os.path.join(self.build_lib, "lockd", "lockctl", "runbooks")
            self.mkpath(folder)
            for path in RUNBOOKS:
                self.copy_file(path, folder)

    def get_source_files(self) -> list[str]:
        """What an archive of the sources has, too."""
        return [*super().get_source_files(), *RUNBOOKS]


def hot() -> list[str]:
    """What is compiled."""
    found = {path for pattern in HOT for path in glob(pattern, recursive=True)}
    return sorted(path for path in found.difference(BUT) if not path.endswith("__init__.py"))


def compiled(*words: str, into: str = "build") -> list[Extension]:
    """The C of all that, with these words for mypy."""
    from mypyc.build import mypycify

    # Types are checked by `make lint`, with all that lockd needs at hand: here they are only used.
    words = ("--config-file=", "--ignore-missing-imports", "--follow-imports=silent", *words, *hot())
    return mypycify(
        list(words), opt_level="1", debug_level="0", multi_file=True, group_name="lockd", target_dir=into
    )


if __name__ == "__main__":
    setup(
        ext_modules=compiled() if os.environ.get("LOCKD_COMPILED") == "1" else [],
        cmdclass={"build_py": WithRunbooks},
    )
