"""A cluster that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.cluster import Cluster, running_cluster


def module_cluster(masters: int, **overrides: Any) -> Any:
    """The fixture of a module whose tests share one running cluster: `cluster = module_cluster(3)`."""

    @pytest.fixture(scope="module", name="cluster")
    def for_all_tests(server_binary: Path) -> Iterator[Cluster]:
        with running_cluster(masters, **overrides) as running:
            yield running

    return for_all_tests
