"""A trial: `python compiled/setup.py compiled/all.txt build_ext --inplace` (needs gcc, mypy, mypy_extensions; 50 s).

core.txt: lockd/core alone. all.txt: with sessions, requests and links. per_pair.py measures either.
"""

import sys
from pathlib import Path

from mypyc.build import mypycify
from setuptools import setup

files = Path(sys.argv.pop(1)).read_text().split()
setup(name="lockd-compiled", packages=[], ext_modules=mypycify(["--strict", "--ignore-missing-imports", *files], opt_level="2", debug_level="0"))
