"""Programs that are no modules of a package: plays bring them to hosts, which have nothing but Python."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def loaded(path: Path) -> Any:
    """The program as a module, anew at each call: a test may change what is in it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
