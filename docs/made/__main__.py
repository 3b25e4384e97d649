"""Writes the pages that are made from the code: python -m docs.made   (make docs-pages)"""

from __future__ import annotations

from docs.made.pages import PAGES

for path, page in PAGES.items():
    path.write_text(page())
