"""How a master, an agent or the monitoring is, in one line of JSON. Run by health.yml on each host; standard
library only.

    health.py master|agent|monitoring[,...] [URL OF PROMETHEUS]

    {"looks": [{"kind": "agent", "state": "well", "what": "..."}, ...]}, one for each of what the host is.

A state is well, warning or unwell. A warning passes by itself: nobody has to do anything about it.
"""

import ctypes
import json
import os
import subprocess
import sys
import urllib.request

FULL = 0.9
WATCHES = ("prometheus", "prometheus-alertmanager", "grafana-server", "prometheus-node-exporter")
SHOWS = "lockd-runbooks"
# The role time_sync writes this.
OUR_CLOCK = "/etc/systemd/system/chrony.service.d/never-step.conf"
# Checks of `lockctl doctor` whose warnings pass by themselves: a script that was refused is a warning for an
# hour, and a lease that is not on all masters gets there by its next renewal, or ends.
PASSING = ("drop-in", "leases")


def run(*command):
    """Status and output of a command; 127 when there is none such, 124 when it hangs."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False
        )
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} does not answer"
    return done.returncode, done.stdout.decode(errors="replace").strip()


# Each of these returns what is wrong, what only has to pass, and what else to know.


def of_master():
    """The unit, the guard and the clock."""
    wrong, notes = [], []
    status, said = run("systemctl", "is-active", "lockd-master.service")
    (notes if status == 0 else wrong).append(f"unit {said}")
    status, said = run("/usr/local/sbin/lockd-guard", "status", "--json")
    try:
        guard = json.loads(said)
        left = f" ({guard['reason']}), {guard['left_s']} s left" if guard["state"] == "quarantined" else ""
        notes.append(f"{guard['state']}{left}, quarantines {sum(guard['quarantines'].values())}")
    except ValueError:
        notes.append(f"guard: {said}")
    if status != 0:
        wrong.append("not in service")
    if run("systemctl", "is-active", "--quiet", "lockd-guard-watch.service")[0] != 0:
        wrong.append("the guard's watch does not run")
    in_sync = clock_in_sync()
    (notes if in_sync else wrong).append("clock in sync" if in_sync else "clock NOT in sync")
    return wrong, [], notes


def clock_in_sync():
    """As chrony says it, or, of a clock that lockd doesn't keep, the kernel."""
    if not os.path.exists(OUR_CLOCK):
        # struct timex, all zero (modes 0: only look), with room to spare. 5 is TIME_ERROR.
        return 0 <= ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) < 5
    return run("chronyc", "-h", "127.0.0.1,::1", "waitsync", "1", "0.1", "0", "1")[0] == 0


def of_agent():
    """What `lockctl doctor` finds: the socket, the masters' votes, a lock taken on trial."""
    status, said = run("/usr/local/bin/lockctl", "doctor", "--json")
    try:
        checks = json.loads(said)["checks"]
    except (ValueError, KeyError):
        return [said or f"lockctl doctor: status {status}"], [], []
    wrong, passing = [], []
    for one in checks:
        if one["verdict"] != "ok":
            passes = one["verdict"] == "warning" and one["check"] in PASSING
            (passing if passes else wrong).append(f"{one['check']}: {one['what']}")
    return wrong, passing, [f"{len(checks)} checks"]


def of_monitoring():
    """What of it is lockd's runs, it reads all of the cluster, and which alerts fire. A Prometheus of
    somebody else's is not asked."""
    wrong, notes = [], []
    ours = [unit for unit in WATCHES if os.path.exists(f"/etc/systemd/system/{unit}.service.d/lockd.conf")]
    if os.path.exists(f"/etc/systemd/system/{SHOWS}.service"):
        ours.append(SHOWS)
    for unit in ours:
        status, said = run("systemctl", "is-active", f"{unit}.service")
        (notes if status == 0 else wrong).append(f"{unit} {said}")
    if len(sys.argv) < 3:
        return wrong, [], notes
    try:
        targets = asked("targets?state=active")["activeTargets"]
        down = [one["scrapeUrl"] for one in targets if one["health"] == "down"]
        alerts = [one["labels"] for one in asked("alerts")["alerts"] if one["state"] == "firing"]
    except (OSError, ValueError, KeyError) as error:
        return [*wrong, f"Prometheus does not answer: {error}"], [], notes
    wrong += [f"can't be scraped: {url}" for url in down]
    for name, severity in sorted({(alert["alertname"], alert.get("severity", "")) for alert in alerts}):
        if name != "LockdWatchdog":
            (wrong if severity == "critical" else notes).append(f"{name} fires")
    return wrong, [], [*notes, f"{len(targets) - len(down)} targets"]


def asked(what):
    with urllib.request.urlopen(f"{sys.argv[2]}/api/v1/{what}", timeout=10) as answer:
        return json.load(answer)["data"]


def disks():
    """What is nearly full, of space or of inodes: each file system that something is written to."""
    wrong, fullest = [], 0.0
    for mount in mounts():
        status = os.statvfs(mount)
        for what, size, free in (
            ("", status.f_blocks, status.f_bavail),
            (" inodes", status.f_files, status.f_favail),
        ):
            used = 1 - free / size if size else 0.0
            fullest = max(fullest, used)
            if used > FULL:
                wrong.append(f"{mount}{what} {used:.0%} full")
    return wrong, [f"disks {fullest:.0%}"]


def mounts():
    wanted = (
        "/",
        "/var",
        "/var/log",
        "/run",
        "/var/lib/lockd-master",
        "/var/lib/lockd-guard",
        "/var/lib/prometheus",
    )
    return sorted({mount_of(path) for path in wanted if os.path.exists(path)})


def mount_of(path):
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


KINDS = {"master": of_master, "agent": of_agent, "monitoring": of_monitoring}


def look_of(kind, more_wrong=(), more_notes=()):
    wrong, passing, notes = KINDS[kind]()
    wrong = [*wrong, *more_wrong]
    state = "unwell" if wrong else "warning" if passing else "well"
    return {"kind": kind, "state": state, "what": "; ".join([*wrong, *passing, *notes, *more_notes])}


def main():
    first, *others = sys.argv[1].split(",")
    print(json.dumps({"looks": [look_of(first, *disks()), *map(look_of, others)]}))


if __name__ == "__main__":
    main()
