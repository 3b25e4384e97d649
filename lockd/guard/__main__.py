"""The restart guard of a master: after a restart that may have lost data, Redis stays out (quarantine) until
every lease that it may have voted for is over.

One file, standard library only, made from the modules of lockd/guard. It is copied to the masters' hosts and
run there by the distribution's Python (3.9 or newer), without lockd. `guard.py --help` says how; this says
why.

The rules (design: safety rules 9, 10 and 11b)
    9   No lease is longer than the master's max TTL, so `max_ttl x 1.01 + 1 s` outlasts them all.
    10  Restarts are dirty unless proven clean, and no time that passed while down is credited.
    11b A forward step of the wall clock, by which Redis expires leases, makes the master dirty.

Only proofs let Redis start at once. Nothing ever has to be written to make a master dirty: it is dirty when a
file is missing. So a full disk, a lost file, a crash between any two steps and a power cut all end in
a quarantine. There are three proofs, each in a file of the state folder, each good for one use:
    permit.json  "Redis was let start, in this boot": written as the last step of `enter`.
    rest.json    "Redis rests until it is stopped, and all that it was told is in its file": by `stop`.
    marker.json  "Redis stopped cleanly, and its data was this": written as the last step of `leave`.

    enter   takes them away and makes that durable BEFORE it looks at anything, so that whatever happens next,
            to it or to Redis or to the host, finds no proof. Then: is the marker sound? Permit, and start.
            Else wait, in full, on CLOCK_BOOTTIME (it counts suspend), then permit, and start. If the wait is
            ended early (SIGTERM, kill -9, power), there is no permit, and the next one begins anew.
    stop    before Redis is told to stop: in one transaction it asks for the settings that a clean stop rests
            on (an exit with 0 says nothing about a Redis that was told `appendonly no` before) and makes
            every client wait for a minute. So nothing can be changed or voted between that and the end. An
            end that comes later proves nothing, nor does one without systemd (SHUTDOWN).
    leave   takes the permit away, makes that durable, and only when there was one, of this boot and of the
            latest enter, and systemd says success AND exited AND 0 (a master that dies of SIGTERM in its
            first millisecond is a 'success'), and it rests since a `stop` of that very start, syncs the data,
            looks at it, and writes the marker last.
    watch   on a forward step takes the proofs away FIRST (unlink: it needs no space, and no sync: a power cut
            leaves no marker anyway), then kills Redis with SIGKILL, and only then does the slow things. In
            the other order Redis could end by itself and `leave` could call it clean. A kill that finds no
            process is repeated until the permit's start is over: Redis may be just about to start.

A marker is sound when its version, host and generation (it is counted at each enter and leave) are right, the
AOF is what it was (every file: inode, size, both times, last 64 KiB; a restored, copied, wiped or missing one
differs), and the wall clock has not been stepped forward since: REALTIME - BOOTTIME has not risen. Slewing
moves both clocks alike and never shows there; faster than 1,000 ppm it ends leases early all the same, so the
watch looks at it too, on the clock that nobody slews. After a host's reboot that can't be seen: then the
kernel must have called its clock synchronised at the stop and must again now, else it is a quarantine
(clock_unproven).
The same comparison is made by `leave` against the permit, and by `watch` when it starts, so a step is also
found when nobody watched. The max TTL needs no comparison: the delay is for the largest one that the guard
was ever told, until a quarantine of that length has been sat out; raising it counts at once.

Data that was restored, copied or shortened is not only dirty: its fence counters are from the past, and votes
are missing. So the guard keeps outside of it what the data was when last seen (mark.json): on which machine,
in which folders, and of the AOF's last file the inode, how much of it was on disk for certain, and what stood
there. `enter` notes that (also that there is none: Redis begins it), the watch every few seconds, `leave` at
every stop. It syncs the file before it counts what is in it, so an end that a power cut tears off was never
noted. A start that is not proven clean compares. If the data is another's, older or shorter, it is moved
aside (never deleted), and the master comes up blank, without a vote until it is admitted. That has to be
certain: if data or mark can't be read, Redis stays out, and systemd tries again. The watch compares, too:
data that was put under a running Redis is never noted, and no stop of that Redis is clean.

A rewrite replaces the file that was noted. After a note of `leave` there are no rewrites: it must be that
very file. Otherwise there may have been any number of rewrites since (a watch that is dead notes nothing, and
the alert LockdMasterDataUnmarked reports it). Then one case is not detected: files that were restored, after
a power cut or a kill of the guard itself, *into* the same folder, with a higher number in their manifest and
times that are not from before the note. Redis 6.2's AOF is one file and has no number, so any other file may
be a rewrite of it.

If the data is not there, its mark is not forgotten: the disk may just not be mounted. The mark is kept as
mark.previous.json, and when data comes back that fits it, that is accepted, as after any dirty stop. If a
master was admitted in its place meanwhile, that one has another admission number, and the old one no vote.

It can't detect that a whole machine was restored from a snapshot, marks and data alike. Never restore a
master.

`enter` and `leave` are systemd's: by hand, beside a running Redis, they would end its permit and its notes.
Without INVOCATION_ID in their environment, which it sets, they do nothing, unless told --by-hand.

It runs as root, and trusts nobody else. It writes only into folders where nobody else can have put anything:
they and all above them are root's, and each file is made anew (O_EXCL), so no planted link or FIFO is ever
written through. Files that it reads, above all Redis's, are opened without following links and without
waiting, must be plain files, and are read up to a limit. Anything strange is no proof: the start is a dirty
one, or there is none. Only metrics may fail without stopping it.

The unit of a master (the + runs the guard as root)
    [Unit]
    After=time-sync.target chrony-wait.service lockd-guard-watch.service
    Wants=time-sync.target chrony-wait.service lockd-guard-watch.service
    RequiresMountsFor=/var/lib/lockd-master /var/lib/lockd-guard
    StartLimitIntervalSec=0
    [Service]
    Type=notify
    NotifyAccess=exec
    ExecStartPre=+/usr/bin/python3 -I /usr/local/lib/lockd/guard.py enter
    ExecStart=/usr/bin/redis-server /etc/lockd/master.conf
    ExecStop=-+/usr/bin/python3 -I /usr/local/lib/lockd/guard.py stop
    ExecStopPost=+/usr/bin/python3 -I /usr/local/lib/lockd/guard.py leave
    Restart=always
    RestartSec=1
    TimeoutStartSec=infinity
    TimeoutStopSec=infinity
and of the watch, lockd-guard-watch.service
    [Unit]
    After=time-sync.target chrony-wait.service
    RequiresMountsFor=/var/lib/lockd-guard
    StartLimitIntervalSec=0
    [Service]
    Type=notify
    ExecStart=/usr/bin/python3 -I /usr/local/lib/lockd/guard.py watch
    Restart=always
    RestartSec=1
    WatchdogSec=10
Both must see one boot id: in a container, what gives a unit another /proc (ProtectKernelTunables=,
ProtectControlGroups=, ProtectProc=) shows it the machine's, and to the watch each permit is of another boot.

The configuration, /etc/lockd/guard.conf (`guard.py check` reads it and says what is wrong)
    [guard]
    max_ttl_ms = 60000                      # not below the masters' identity and any agent's
    data_dir = /var/lib/lockd-master        # Redis's `dir`
    unit = lockd-master.service             # what the watch kills
    append_dir = appendonlydir              # Redis's appenddirname (the rest may be left out; defaults shown)
    append_file = appendonly.aof            # Redis's appendfilename
    state_dir = /var/lib/lockd-guard        # root's alone
    textfile = /var/lib/lockd/node-exporter/lockd_guard.prom    # in a folder of root's; empty: no metrics
    delay_ms = 0                            # stay out for longer than max_ttl x 1.01 + 1 s; 0: for that long
    clock_step_ms = 2                       # 1 or 2: a lease gives away 2 ms for drift, however short it is
    socket = /run/lockd-master/redis.sock   # Redis's `unixsocket`
    user = lockd_loader                     # with +multi +exec +info +config|get +client|pause
    password_file = /etc/lockd-master/loader.password   # root's; empty: as Redis's default user

Metrics (the watch writes the file every 15 s: an old `node_textfile_mtime_seconds` means that it is dead)
    lockd_guard_quarantined, lockd_guard_quarantine_until_timestamp_seconds,
    lockd_guard_quarantines_total{reason}, lockd_guard_delay_seconds,
    lockd_guard_overrides_total, lockd_guard_clock_steps_total{direction},
    lockd_guard_data_moved_aside_total, lockd_guard_data_marked_timestamp_seconds
"""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
