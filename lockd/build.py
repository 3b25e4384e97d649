"""How this lockd was built: setup.py compiles the code that every lock runs through, if asked to. Also the
decorator that some compiled classes need."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

__all__ = ["BUILDS", "build", "mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """mypyc reads it: nothing is left to do when it runs."""
        return lambda a_class: a_class


BUILDS = COMPILED, INTERPRETED = "compiled", "interpreted"


def build() -> str:
    """One of BUILDS."""
    spec = find_spec("lockd.core.link")
    assert spec is not None
    return INTERPRETED if str(spec.origin).endswith(".py") else COMPILED
