"""Any text, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_CHARACTERS = st.characters(exclude_categories=("Cs",))


def any_text(max_size: int | None = None) -> SearchStrategy[str]:
    """As `st.text` without an alphabet, which takes 200 MB to find out that UTF-8 has all but surrogates."""
    return st.text(alphabet=_CHARACTERS, max_size=max_size)
