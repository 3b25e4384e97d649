"""How a master or an agent is, in one line of JSON: {"well": true, "what": "..."}. Run by health.yml on
each host; standard library only."""

import json
import subprocess
import sys


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


def of_master():
    """The unit, the guard and the clock."""
    wrong, notes = [], []
    status, said = run("systemctl", "is-active", "lockd-master.service")
    (notes if status == 0 else wrong).append(f"unit {said}")
    status, said = run("/usr/local/sbin/lockd-guard", "status", "--json")
    try:
        guard = json.loads(said)
        left = (
            f" for {guard['left_s']} s still ({guard['reason']})" if guard["state"] == "quarantined" else ""
        )
        notes.append(f"{guard['state']}{left}, quarantines {sum(guard['quarantines'].values())}")
    except ValueError:
        notes.append(f"guard: {said}")
    if status != 0:
        wrong.append("not in service")
    if run("systemctl", "is-active", "--quiet", "lockd-guard-watch.service")[0] != 0:
        wrong.append("the guard's watch is dead")
    status, _ = run("chronyc", "-h", "127.0.0.1,::1", "waitsync", "1", "0.1", "0", "1")
    (notes if status == 0 else wrong).append("clock in sync" if status == 0 else "clock NOT in sync")
    return wrong, notes


def of_agent():
    """What `lockctl doctor` finds: the socket, the masters' votes, a lock taken on trial."""
    status, said = run("/usr/local/bin/lockctl", "doctor", "--json")
    try:
        checks = json.loads(said)["checks"]
    except (ValueError, KeyError):
        return [said or f"lockctl doctor: status {status}"], []
    wrong = [f"{one['check']}: {one['what']}" for one in checks if one["verdict"] != "ok"]
    return wrong, [f"{len(checks)} checks"]


def main():
    wrong, notes = of_master() if sys.argv[1] == "master" else of_agent()
    print(json.dumps({"well": not wrong, "what": "; ".join(wrong + notes)}))


if __name__ == "__main__":
    main()
