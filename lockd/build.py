"""How this lockd was built: setup.py compiles what each lock passes through, if asked to. And what has to be
said of a class for that."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

__all__ = ["build", "mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_attributes):
        """mypyc reads it: nothing is left to do when it runs."""
        return lambda a_class: a_class


def build() -> str:
    """Compiled or interpreted, in a word."""
    spec = find_spec("lockd.core.link")
    assert spec is not None
    return "interpreted" if str(spec.origin).endswith(".py") else "compiled"
