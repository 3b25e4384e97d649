"""The command `lockctl`: locks for shell scripts, and what operators see and do.

Each command asks the agent of this host and prints its answer. Scripts need it to start quickly, so a module
that only some commands need (redis-py, rich, the checks of `doctor`) is imported by those alone.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import click

from lockd import __version__
from lockd.config.socket import DEFAULT_SOCKET
from lockd.lockctl.agent import AgentClient
from lockd.lockctl.change import cluster, force_release, master, reload
from lockd.lockctl.errors import CannotExecute, Lost, Refused, Unreachable
from lockd.lockctl.failures import ExitStatus, report
from lockd.lockctl.locks import extend, lead_command, lock, run_command, unlock
from lockd.lockctl.runbook import runbook
from lockd.lockctl.script import script
from lockd.lockctl.top import top
from lockd.lockctl.view import doctor, holder, locks, masters, ping
from lockd.lockctl.words import command_line, escape_what_cannot_be_shown
from lockd.output import could_not_write, open_standard_files

_STATUSES = """\b
Exit status:
   0  done
   1  no: the resource is free (holder, force-release), nothing is held with
      this token (unlock, extend), not confirmed; doctor: there are warnings;
      reload --check: the agent runs with other settings; script: not recognised
   2  doctor: there are failures
  64  invalid command line
  65  the agent refused the request as invalid, or not possible now; reload: refused
  69  the agent can't be reached, or is stopping
  73  the output can't be written: what was locked for it was given back
  74  no quorum: too few masters have a vote, or clocks can't be trusted now
  75  taken: still held by another holder, even after --wait
  76  lost: the lease had already ended
  77  denied by a policy or a limit, or only for operators
 130  interrupted (Ctrl-C)
`lockctl run` has more: see `lockctl run --help`.

Durations are written 10 or 10s, 500ms, 2m, 1h.
"""


class Lockctl(click.Group):
    """Turns every failure into a few lines on stderr and an exit status."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        open_standard_files()
        escape_what_cannot_be_shown()
        try:
            if not args and extra.get("args") is None:
                extra["args"] = command_line()
            status = super().main(*args, **extra)
            sys.stdout.flush()
        except (Refused, Unreachable, Lost, CannotExecute) as error:
            status = report(error)
        except click.ClickException as error:
            error.show()
            status = ExitStatus.USAGE if isinstance(error, click.UsageError) else error.exit_code
        except click.Abort:
            status = ExitStatus.INTERRUPTED
        except OSError as error:
            status = could_not_write(error)
        sys.exit(status if isinstance(status, int) else ExitStatus.DONE)


@click.group(cls=Lockctl, epilog=_STATUSES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="lockctl")
@click.option(
    "--socket",
    "socket_path",
    envvar="LOCKD_SOCKET",
    default=DEFAULT_SOCKET,
    show_default=True,
    show_envvar=True,
    help="The agent's socket for apps. Operators are let in by the one beside it, PATH.operators.",
)
@click.pass_context
def main(ctx: click.Context, socket_path: str) -> None:
    """Locks for shell scripts, and tools for operators of lockd. Start with `lockctl doctor`.

    A RESOURCE is the name of what is locked, such as backup or invoice:42. It is the bytes that you type, in
    every locale. What the terminal can't show is printed in hexadecimal.
    """
    ctx.obj = AgentClient(socket_path)


for _command in (
    *(run_command, lead_command, lock, unlock, extend),
    *(holder, locks, masters, top, ping, doctor, runbook),
    *(force_release, cluster, master, reload),
    script,
):
    main.add_command(_command)
