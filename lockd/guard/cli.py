"""The command line."""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Sequence
from typing import Any

from .clocks import ClockAlarm
from .config import DEFAULT_CONFIG, read_config
from .enter import enter
from .errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_QUARANTINED, EXIT_STOPPED, GuardError, Interrupted
from .guard import Guard
from .host import Host
from .leave import leave
from .overrides import write_override
from .status import described, status
from .stop import stop
from .watch import StepWatch

_EPILOG = """\
exit status:
  0   done; `status`: in service
  1   refused or not possible: the message says what is safe and what to do next. `enter`: Redis must not
  start
  2   usage
  3   `status`: quarantined
  4   `status`: stopped
  75  interrupted by a signal. `enter`: Redis must not start, and the next start waits in full
  78  the configuration is missing or invalid

The beginning of this file explains the units, the configuration and the reasons.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status."""
    options = _parser().parse_args(arguments)
    host = Host()
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # If it was ignored when we were started by hand (nohup), it stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        guard = Guard(read_config(options.config, options.command == "check"), host)
        _refuse_by_hand(options, guard)
        return _run(options, guard)
    except GuardError as error:
        host.log("error", f"{options.command}_refused", why=error)
        host.status(f"refused: {error}")
        return error.exit_status
    except Interrupted:
        host.log("warning", f"{options.command}_interrupted")
        return EXIT_OK if options.command == "watch" else EXIT_INTERRUPTED


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted


def _refuse_by_hand(options: argparse.Namespace, guard: Guard) -> None:
    """A start or stop that systemd knows nothing of: Redis may be running."""
    if getattr(options, "by_hand", True) or guard.host.environ.get("INVOCATION_ID"):
        return
    unit = guard.config.unit
    raise GuardError(
        f"systemd runs `{options.command}`, as part of {unit}. By hand, while Redis runs, it would remove "
        f"the proof that the data is current. Nothing was changed. Next: `sudo systemctl start {unit}`, or "
        "`stop`. If the master has no unit and Redis does not run: --by-hand"
    )


def _run(options: argparse.Namespace, guard: Guard) -> int:
    if options.command == "enter":
        enter(guard)
    elif options.command == "stop":
        stop(guard)
    elif options.command == "leave":
        leave(guard)
    elif options.command == "watch":
        StepWatch(guard).run(ClockAlarm())
    elif options.command == "override":
        print(write_override(guard, options.reason))
    elif options.command == "status":
        return _show_status(status(guard), options.json)
    elif options.command == "show":
        _show_config(guard.config.as_dict(), options.json)
    return EXIT_OK


def _show_config(values: dict[str, Any], as_json: bool) -> None:
    lines = (f"{key} = {'' if value is None else value}" for key, value in values.items())
    print(json.dumps(values) if as_json else "\n".join(lines))


def _show_status(found: dict[str, Any], as_json: bool) -> int:
    print(json.dumps(found) if as_json else described(found))
    return {"in_service": EXIT_OK, "quarantined": EXIT_QUARANTINED}.get(found["state"], EXIT_STOPPED)


def _a_reason(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty: it is written to the log")
    return text


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--config", default=DEFAULT_CONFIG, metavar="FILE", help="default: %(default)s")
    parser = argparse.ArgumentParser(
        prog="guard.py",
        description=(
            "The restart guard of a lock master: it keeps Redis out after a restart that may have lost data."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common], help=text, description=text)

    entering = command("enter", "ExecStartPre=: return when Redis may start. Waits after an unclean stop")
    command(
        "stop",
        ("ExecStop=: pause all Redis clients, and record whether the settings for a clean stop are in force"),
    )
    leaving = command("leave", "ExecStopPost=: record how Redis ended, from systemd's environment")
    for one in (entering, leaving):
        text = "run it without systemd (no INVOCATION_ID). Only while Redis does not run"
        one.add_argument("--by-hand", action="store_true", help=text)
    command(
        "watch",
        ("a separate service: when the wall clock steps forward, kill Redis, which starts a quarantine"),
    )
    overriding = command("override", "as root: end the current quarantine, or skip the next one (once)")
    overriding.add_argument("--reason", required=True, type=_a_reason, help="for the log: why this is safe")
    showing = (
        command("status", "show whether it is in service, quarantined or stopped, and why"),
        command("show", "show the configuration in use, and how long a quarantine takes"),
    )
    for one in showing:
        one.add_argument("--json", action="store_true", help="print one JSON object")
    command("check", "only check the configuration")
    return parser
