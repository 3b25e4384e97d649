"""Which pages are made from the code, and by what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from docs.made import alerts, command_line, configuration, scripts, variables, wire

PAGES: dict[Path, Callable[[], str]] = {
    wire.WIRE: wire.wire_page,
    wire.ERRORS: wire.errors_page,
    scripts.PAGE: scripts.page,
    command_line.PAGE: command_line.page,
    configuration.PAGE: configuration.page,
    alerts.PAGE: alerts.page,
    variables.PAGE: variables.page,
}
