"""The agent of a host: run → start → serve → stop. Signal handlers only set flags."""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import random
from time import perf_counter_ns
from typing import Any

import uvloop

from lockd import __version__
from lockd.clock import boottime_ns, slewed_by_now_ns, wall_ahead_ns
from lockd.config.current import Current
from lockd.config.model import CANARY, FILES_LEAST, Config
from lockd.core.ballots.ballot import Ballot
from lockd.core.journal import Held, Replayed, Unreadable, replaying
from lockd.core.leases import Lease, pid_and_uid
from lockd.core.locks import Locks
from lockd.core.membership import State
from lockd.core.notices import Notice
from lockd.core.slewing import Reading
from lockd.core.takeover import Taken, taking_over
from lockd.core.turns import Turns
from lockd.core.values import Bound, Chance, RedlockParameters
from lockd.http import server as http_server
from lockd.http.status_page import CLASS_PATHS, HostStatus, render, render_classes
from lockd.masters.fleet import Fleet
from lockd.masters.link import Link
from lockd.metrics.collector import Metrics
from lockd.server.accounts import Accounts, UserDatabase
from lockd.server.buffers import Buffers
from lockd.server.canary import Canary
from lockd.server.commands.listings import master_rows
from lockd.server.commands.table import Commands
from lockd.server.entrance import Entrance
from lockd.server.heirs import Heir
from lockd.server.incidents import Incidents
from lockd.server.journal import JournalFile, NotOurs, origin_of
from lockd.server.log import EventLog
from lockd.server.memory import MemoryWatch, memory_limit
from lockd.server.operators import OperatorsSession, OperatorsSocket, Places
from lockd.server.quotas import Quotas, Room
from lockd.server.reload import Reload
from lockd.server.session import Session
from lockd.server.shared import Shared
from lockd.server.systemd import notifier, watchdog_interval_s
from lockd.server.tokens import fresh_token
from lockd.server.turns import LoopTurns
from lockd.server.unix_socket import AppSocket, CannotServe
from lockd.threads import in_thread

_BEAT_S = 0.25
_ALIVE_S = 2.0
_SWITCH_S = 500e-6
_FIRST_LOOK_S = 1.0
_ENDINGS_S = 1.0
_JOURNAL_AGAIN_S = 1.0
_JOURNAL = "the journal"
"""Writing it anew takes turns with all accounts: it is long, so it does not go first, as the house does."""


def serve(config: Config) -> int:
    """Run the agent until SIGTERM or SIGINT. Returns the exit status: 0 it was told to stop, 1 it could not
    serve."""
    # Until there is a handler, SIGHUP waits, and ends no agent.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    log = EventLog("lockd", config.log_level)
    log.adopt_libraries()
    try:
        # The thread that makes pages may keep the interpreter for this long while the loop wants it.
        sys.setswitchinterval(_SWITCH_S)
        uvloop.run(Agent(config, log).run())
    except CannotServe as why:
        log.error("cannot_serve", why=str(why))
        return 1
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return 0


class Agent:
    """Everything one agent has: its masters, its locks, its sessions."""

    def __init__(self, config: Config, log: EventLog) -> None:
        self.current = current = Current(config)
        self.log = log
        self.host = os.fsencode(socket.gethostname()).replace(b" ", b"_")[:64] or b"?"
        self.quorum = config.quorum
        self.metrics = Metrics(current)
        self.quotas = Quotas(current, Room(memory_limit(), self._raise_file_limit()))
        self._memory = MemoryWatch(self.quotas, log)
        self.incidents = Incidents(current, self.metrics, log)
        self.fleet = Fleet(
            config, self.metrics.masters, self._master_changed, self._ballot_broke, self._clocks_moved,
            self._noticed, self.host, self.quotas.bytes,
        )  # fmt: skip
        parameters = RedlockParameters(
            len(config.masters), config.min_validity_ms, config.timeouts.master_ms,
            turn_ms=config.turn_ms, recall_ms=config.recall_ms,
        )  # fmt: skip
        self.journal = self._journal_beside(config)
        self.locks = Locks(
            parameters, self.fleet, self.metrics.leases, Chance(fresh_token, random), self.journal.ledger,
            Turns(perf_counter_ns),
        )  # fmt: skip
        self.turns = LoopTurns(
            self.locks.turns, lambda failure: self.incidents.internal_error("a job failed", failure)
        )
        accounts = Accounts(boottime_ns, UserDatabase().ask)
        log.account_of = accounts.of_user
        self.shared = Shared(
            host=self.host,
            current=current,
            locks=self.locks,
            turns=self.turns,
            account_of=accounts.of,
            quotas=self.quotas,
            buffers=Buffers(current, self.quotas),
            incidents=self.incidents,
            log=log,
        )
        self.metrics.attach(self.fleet, self.locks, lambda: self.quotas.all.connections)
        self.metrics.agent.limits_in_use = self.quotas.in_use
        self._logged_states: dict[str, tuple[State, bool, dict[str, str]]] = {}
        self._beaten_s = time.monotonic()
        self._started_s = time.monotonic()
        self._stop = asyncio.Event()
        self._canary = Canary(self.locks, self.metrics.canary, log, current, self.host)
        self._notify = notifier()
        operators_socket = OperatorsSocket(config.socket.path, self.shared)
        self._reload = Reload(
            current, self.shared, self.metrics, self._canary, log, self._notify, operators_socket.let_in
        )
        commands = Commands(current, self.shared, self.fleet, self.metrics, self._reload)
        app_socket = AppSocket(config.socket, lambda: self.shared.permissions.socket_group)
        self._apps = Entrance(app_socket, partial(Session, self.shared, commands), log)
        for_operators = partial(OperatorsSession, self.shared, commands, Places())
        self._entrances = self._apps, Entrance(operators_socket, for_operators, log, at_a_turn=1)
        self._http: http_server.Server | None = None
        self._waits_for = "the first look at the masters"
        self._journal_tried_s = 0.0
        self._takes_over = False
        self.metrics.agent.socket_trouble = self._apps.trouble

    def _journal_beside(self, config: Config) -> JournalFile:
        names = tuple(master.name for master in config.masters)
        path = config.socket.path.with_name(config.socket.path.name + ".journal")
        journal = JournalFile(path, origin_of(config.cluster, names), self._journal_failed)
        self.metrics.agent.journal_trouble = lambda: journal.trouble
        return journal

    def _journal_failed(self, why: str) -> None:
        self.metrics.agent.journal_failures += 1
        self.log.error("journal_trouble", why=why)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            # A script's `&` has SIGINT ignored: a Ctrl-C is not meant for what runs in the background.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._stop.set)
        # Not through the loop, which would let it kill the process once the loop has ended.
        signal.signal(signal.SIGHUP, lambda *_: self._hung_up(loop))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        loop.set_exception_handler(lambda _loop, context: self._failed(context))
        await self._start(loop)
        try:
            await self._stop.wait()
            self._drain()
        finally:
            await self._end()

    def _hung_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """An agent that stops leaves it to the next one."""
        if not (self._stop.is_set() or loop.is_closed()):
            loop.call_soon_threadsafe(self._reload_soon)

    def _reload_soon(self) -> None:
        if not self._stop.is_set():
            self.shared.keep(asyncio.get_running_loop().create_task(self._reload_now()))

    async def _reload_now(self) -> None:
        try:
            await self._reload.run("SIGHUP")
        except Exception as failure:
            self.incidents.internal_error("a reload failed", failure)

    # Starting

    async def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.locks.wall_ahead_ns = wall_ahead_ns()
        await self._start_metrics(loop)
        self.shared.inlets.start(loop)
        made = loop.create_task(self._make_entrances())
        await self._comes(made, _FIRST_LOOK_S)
        self.fleet.start()
        self.shared.processes.start(loop)
        self._beat_task = loop.create_task(self._beat())
        await self._first_look(loop)
        for _ in self._taking_over():
            pass
        self._canary_task = loop.create_task(self._canary.run())
        if not await self._are_made(made):
            return
        for entrance in self._entrances:
            await entrance.open()
        self.log.info(
            "serving",
            version=__version__,
            socket=str(self.current.config.socket.path),
            masters=len(self.current.config.masters),
            quorum=self.quorum,
        )
        self._notify.ready()
        # What is there now stays, so the garbage collector need not look at it over and over. It looks at
        # little at a time, since the loop stands still meanwhile (20,000 new objects took 18 ms), and rarely
        # at everything.
        gc.collect()
        gc.freeze()
        gc.set_threshold(1_000, 2, 10_000)

    async def _first_look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Apps that connect before it is over wait in the kernel: to report an outage to them would be wrong.
        The wait is short, since it may really be an outage."""
        look = loop.create_task(self.fleet.first_look.wait())
        await self._comes(look, _FIRST_LOOK_S)
        look.cancel()

    async def _comes(self, task: "asyncio.Task[Any]", within_s: float | None = None) -> bool:
        """Whether it is done within that time, and before the agent is told to stop."""
        stop = asyncio.get_running_loop().create_task(self._stop.wait())
        await asyncio.wait((stop, task), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
        return task.done()

    async def _make_entrances(self) -> None:
        """As soon as it is known who may lock what: an app that comes then waits in the kernel."""
        await self._reload.begin()
        for entrance in self._entrances:
            entrance.make()

    async def _are_made(self, made: "asyncio.Task[None]") -> bool:
        """Until they are, nobody is let in. What the previous agent held is held on all the same. False: the
        agent is told to stop before."""
        if not made.done():
            self._waits_for = "the lookup of users and groups"
            self.log.warning("user_database_silent", why="nobody is let in until it answers")
        if await self._comes(made):
            return True
        made.cancel()
        return False

    def _taking_over(self) -> Iterator[None]:
        """Take over what the previous agent held, in steps. At the start that is noted before anything about
        it is sent; after apps were let in, it is noted bit by bit (`_look_after_journal`)."""
        replayed, counts = Replayed(), Counter[Taken]()
        yield from self._reading_journal(replayed)
        if replayed.trouble is not None:
            self.log.warning("journal_torn", why=replayed.trouble)
        for lease in taking_over(self.locks, replayed, self._started, self._heir, boottime_ns, counts):
            if lease is not None:
                self._belongs_to_its_process(lease)
            yield
        for process in [one for one in self.shared.processes.all if one.idle]:
            self.shared.processes.forget(process)
        if not self._apps.is_open:
            self.journal.begin()
        for fate, count in counts.items():
            self.metrics.agent.inherited[fate] += count
        sent_again = len(replayed.endings) if replayed.is_whole else 0
        if counts.total() or sent_again:
            named = {str(fate): count for fate, count in counts.items()}
            self.log.info("took_over", **named, releases_sent_again=sent_again)

    def _reading_journal(self, replayed: Replayed) -> Iterator[None]:
        """A journal that can't be read is left alone, and the log says so: a newer agent may have written
        it."""
        self._journal_tried_s = time.monotonic()
        before = self.journal.trouble
        try:
            if data := self.journal.take():
                yield from replaying(data, self.journal.ledger.origin, replayed, is_last=self.journal.is_last)
        except Unreadable as why:
            try:
                kept_as = str(self.journal.set_aside())
            except OSError as failure:
                kept_as = f"nothing: {failure}"
            self.log.error("journal_unread", why=str(why), kept_as=kept_as)
        except (NotOurs, OSError) as why:
            if str(why) != before:
                self.log.error("journal_unread", why=str(why), journal=str(self.journal.path))

    def _belongs_to_its_process(self, lease: Lease) -> None:
        """In the step in which it was taken over: the process may die before the next one."""
        queue, holder = self.locks.queues.get(lease.resource), lease.holder
        is_held = queue is not None and queue.lease is lease
        if is_held and isinstance(holder, Heir) and holder.process is not None:
            holder.process.leases[lease] = None

    def _started(self, held: Held) -> int | None:
        _, uid = pid_and_uid(held.owner)
        return self.shared.processes.adopt(held.pid, held.started, uid)

    def _heir(self, held: Held) -> Heir:
        bound = held.bound is Bound.PROCESS
        process = self.shared.processes.living(held.pid, held.started) if bound else None
        label = held.label if held.label == CANARY else self.current.config.class_of(held.resource).name
        return Heir(self.shared, held, label, process)

    async def _start_metrics(self, loop: asyncio.AbstractEventLoop) -> None:
        """Its address may be a name, and its certificate on a dead disk. Apps do not wait for that."""
        if self.current.config.metrics is None:
            return
        start = partial(
            http_server.start,
            self.current.config.metrics,
            self.metrics,
            self._alive,
            self._ready,
            failed=partial(self._page_failed, loop),
            status=self._pages_for_people(),
            names=self.current.config.metrics_hosts,
            tls=self.current.config.metrics_tls,
        )
        starts = loop.create_task(in_thread(start))
        try:
            if await self._comes(starts, _FIRST_LOOK_S):
                self._http = starts.result()
                return
        except OSError as failure:
            raise CannotServe(str(failure)) from failure
        self.log.warning("metrics_late", why="their address or certificate was not read in time")
        starts.add_done_callback(self._metrics_came_late)

    def _metrics_came_late(self, starts: "asyncio.Task[http_server.Server]") -> None:
        if starts.cancelled():
            return
        if (failure := starts.exception()) is None:
            self._http = starts.result()
        else:
            self.log.error("metrics_failed", why=str(failure))

    def _raise_file_limit(self) -> int | None:
        """Each connection is an open file, and so is each process that has connections or holds leases.
        Returns how many there may be. Raises CannotServe."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= most < FILES_LEAST:
            raise CannotServe(
                f"only {most} files may be open, and the agent needs {FILES_LEAST}: raise LimitNOFILE= of "
                "its unit, or `ulimit -n`"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return None if most == resource.RLIM_INFINITY else most

    # Time

    async def _beat(self) -> None:
        """A few times a second: show that the loop is alive, and look at what changes just because time
        passes."""
        watchdog_s = watchdog_interval_s()
        barked_s = 0.0
        while True:
            planned_s = time.monotonic() + _BEAT_S
            await asyncio.sleep(_BEAT_S)
            self._beaten_s = time.monotonic()
            self.metrics.agent.loop_lag(max(0, int((self._beaten_s - planned_s) * 1e9)), boottime_ns())
            self.locks.wall_ahead_ns = wall_ahead_ns()
            self.turns.look()
            self.fleet.look_at_own_clock(Reading(*slewed_by_now_ns()), boottime_ns())
            self.shared.buffers.cut_off_the_deaf(boottime_ns())
            self._memory.look()
            await self._look_after_entrances()
            self._look_after_journal()
            self.log.flush()
            if watchdog_s is not None and self._beaten_s - barked_s >= watchdog_s / 2:
                barked_s = self._beaten_s
                self._notify.watchdog()

    def _look_after_journal(self) -> None:
        """While another agent has it, this one tries again and again, and then takes over what that one
        leaves."""
        if self._takes_over:
            # Until it is done, the one that was left there is the journal.
            return
        if not self.journal.is_ours() and self._beaten_s - self._journal_tried_s >= _JOURNAL_AGAIN_S:
            self._takes_over = True
            self.shared.keep(asyncio.get_running_loop().create_task(self._take_over_late()))
        elif self.journal.look_after():
            self.turns.add(_JOURNAL, self.journal.step)

    async def _take_over_late(self) -> None:
        try:
            await self.turns.through(_JOURNAL, self._taking_over())
        except Exception as failure:
            self.incidents.internal_error("a take-over failed", failure)
        finally:
            self._takes_over = False

    async def _look_after_entrances(self) -> None:
        if not self._stop.is_set():
            for entrance in self._entrances:
                await entrance.look_after()

    # Stopping

    def _drain(self) -> None:
        """Grant nothing any more. What is held stays held: the next agent takes it over (rule 13)."""
        self._notify.stopping()
        self.log.info("stopping", held=self.locks.held)
        self.locks.drain(boottime_ns())

    async def _end(self) -> None:
        """What is still held stays held: its holders are alive, and the next agent takes it over (rule
        13)."""
        await self.shared.endings.finish(_ENDINGS_S, lambda: self.locks.has_to_drain)
        self.shared.stopped = True
        for entrance in self._entrances:
            entrance.close()
        # Except DETACHED leases, which no process holds.
        left = self.locks.held - len(self.locks.detached)
        # The end of each connection shows which replies were read, for the next agent. In one step: this one
        # is about to go, and whatever makes it stay longer makes the next one come later.
        for session in list(self.shared.sessions):
            session.close()
        self.shared.inlets.stop()
        self.shared.processes.stop(asyncio.get_running_loop())
        # A moment, so that the last releases reach the masters.
        await asyncio.sleep(0.05)
        self._beat_task.cancel()
        self._canary_task.cancel()
        await self.fleet.stop()
        if self._http is not None:
            self._http.stop()
        for entrance in self._entrances:
            entrance.remove()
        self.journal.close()
        self.log.info("stopped", left_to_the_next_agent=left)
        self.log.flush()

    # What happened

    def _master_changed(self, link: Link) -> None:
        if self.shared.stopped:
            return
        reason = self.fleet.refusal_of(link)
        before, now = self._logged_states.get(link.master.name), (link.state, bool(reason), link.refuses)
        if before == now:
            return
        self._logged_states[link.master.name] = now
        write = self.log.warning if reason and link.state is not State.CONNECTING else self.log.info
        write(
            "master_state",
            master=link.master.name,
            state=str(link.state),
            vote=int(not reason),
            reason=reason,
            voting=self.fleet.giving().bit_count(),
        )

    def _clocks_moved(self, now_ns: int) -> None:
        self.locks.clocks_moved(now_ns)

    def _noticed(self, master: int, notice: Notice, now_ns: int) -> None:
        try:
            self.locks.noticed(master, notice, now_ns)
        except Exception as failure:
            self.incidents.internal_error(f"a notice ({notice.kind.value.decode()}) failed", failure)

    def _failed(self, context: dict[str, Any]) -> None:
        """An exception in the event loop that nobody caught: an error of the agent."""
        self.incidents.internal_error(str(context.get("message", "")), context.get("exception"))

    def _page_failed(self, loop: asyncio.AbstractEventLoop, path: str, error: Exception) -> None:
        """Called from threads of the HTTP port, which may outlive the loop by a moment."""
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self.incidents.internal_error, f"the page {path}", error)

    def _ballot_broke(self, ballot: Ballot, failure: Exception, now_ns: int) -> None:
        """One request failed while an answer of a master was processed: that request is refused."""
        self.incidents.internal_error(f"a {type(ballot).__name__.lower()} failed", failure)
        try:
            self.locks.broke(ballot, now_ns)
        except Exception as again:
            self.incidents.internal_error("and could not be given back", again)

    # What is asked of it as a whole

    def _alive(self) -> bool:
        return time.monotonic() - self._beaten_s < _ALIVE_S

    def _ready(self) -> tuple[bool, str]:
        voting = self.fleet.giving().bit_count()
        reasons = [self.fleet.why_not(link.index) for link in self.fleet.links if self.fleet.refusal_of(link)]
        if self.locks.draining:
            return False, "draining"
        if not self._apps.is_open:
            return False, f"starting: {self._waits_for} is not over"
        if trouble := self._apps.trouble():
            return False, trouble
        return (
            voting >= self.quorum,
            f"{voting} of {len(self.fleet.links)} masters have a vote, {self.quorum} are needed "
            + " ".join(reasons),
        )

    def _pages_for_people(self) -> dict[str, Callable[[], bytes]]:
        return {
            "/": self._first_page,
            **{path: partial(self._classes_page, order) for path, order in CLASS_PATHS.items()},
        }

    def _first_page(self) -> bytes:
        return render(self._status_for_page()).encode()

    def _classes_page(self, order: str) -> bytes:
        return render_classes(self._status_for_page(), order).encode()

    def _status_for_page(self) -> HostStatus:
        """Called from the thread that makes pages."""
        canary = self.metrics.canary.trouble
        return HostStatus(
            host=self.host.decode(errors="backslashreplace"),
            cluster=self.current.config.cluster,
            uptime_ms=int(1000 * (time.monotonic() - self._started_s)),
            fingerprint=self.current.config.fingerprint(),
            connections=self.quotas.all.connections,
            quorum=self.quorum,
            responsive=self._alive(),
            draining=self.locks.draining,
            masters=master_rows(self.fleet),
            occupancy=self.metrics.occupancy.rested(),
            totals=self.metrics.leases.totals_by_class(),
            canary_failures=canary.failures,
            canary_trouble=canary.why,
        )
