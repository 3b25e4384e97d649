"""What helpers need to see of a host of lockd, as text. Run by support_bundle.yml on each host; standard
library only.

    support.py PART[=URL]...

Parts are what the host is, master or agent, and which programs of lockd's monitoring it has, with the URLs
of those that answer there: prometheus, alertmanager, grafana, runbooks.

No password file, key or ACL is shown. They are read only to remove their contents wherever these appear.
What merely looks like a secret is removed, too.
"""

import re
import subprocess
import sys

COMMON = (
    "date --utc --rfc-3339=seconds",
    "uname -a",
    "cat /etc/os-release",
    "uptime",
    "free -m",
    "df -h",
    "chronyc -h 127.0.0.1,::1 tracking",
    "chronyc -h 127.0.0.1,::1 sources",
    "timedatectl",
    "ss --summary",
    "systemctl --failed --no-pager",
)
MASTER = (
    "systemctl status --no-pager --full lockd-master lockd-guard-watch lockd-firewall",
    "lockd-guard status",
    "cat /etc/lockd/guard.conf",
    "cat /etc/lockd-master/master.conf",
    "cat /etc/lockd/firewall.nft",
    "ls -la --full-time /var/lib/lockd-master /var/lib/lockd-master/appendonlydir /var/lib/lockd-guard",
    "redis-server --version",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u lockd-master -u lockd-guard-watch",
)
AGENT = (
    "systemctl status --no-pager --full lockd lockd-firewall",
    "cat /etc/lockd/firewall.nft",
    "ls -la /opt/lockd /run/lockd",
    "cat /etc/lockd/lockd.yml",
    "lockctl masters",
    "lockctl doctor",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u lockd -u chrony",
)
PROMETHEUS = (
    "systemctl status --no-pager --full prometheus prometheus-node-exporter lockd-firewall",
    "cat /etc/lockd/firewall.nft",
    "cat /etc/default/prometheus",
    "cat /etc/prometheus/prometheus.yml",
    "ls -la /etc/prometheus /etc/prometheus/lockd /etc/prometheus/lockd/targets",
    "promtool check config /etc/prometheus/prometheus.yml",
    "promtool query instant {url} up",
    "promtool query instant {url} ALERTS",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u prometheus -u prometheus-node-exporter",
)
# Its configuration as it says it itself: without most of what receivers authenticate with.
ALERTMANAGER = (
    "systemctl status --no-pager --full prometheus-alertmanager",
    "cat /etc/default/prometheus-alertmanager",
    "amtool check-config /etc/prometheus/alertmanager.yml",
    "amtool --alertmanager.url={url} config show",
    "amtool --alertmanager.url={url} alert query",
    "amtool --alertmanager.url={url} silence query",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u prometheus-alertmanager",
)
GRAFANA = (
    "systemctl status --no-pager --full grafana-server",
    "cat /etc/grafana/grafana.ini",
    "ls -la /etc/grafana/provisioning/datasources /etc/grafana/provisioning/dashboards",
    "ls -la /var/lib/grafana/lockd",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u grafana-server",
)
RUNBOOKS = (
    "systemctl status --no-pager --full lockd-runbooks",
    "journalctl --no-pager --lines=500 --output=short-iso-precise -u lockd-runbooks",
)
PARTS = {
    "master": MASTER,
    "agent": AGENT,
    "prometheus": PROMETHEUS,
    "alertmanager": ALERTMANAGER,
    "grafana": GRAFANA,
    "runbooks": RUNBOOKS,
}
# What is a secret in a file of YAML by its name; in alertmanager.yml also the path of each URL.
KEYS = r"(?i)\b\w*(?:password|secret|token|credentials|key)[\"']?\s*:\s*[\"']?([^\s\"',{}]{6,})"
# Where secrets are on a host, and which parts of those files they are.
SECRETS = (
    ("/etc/lockd/masters.password", r"\S+"),
    ("/etc/lockd/lockd.yml", r"\bpassword[\"']?\s*:\s*[\"']?([^\s\"',}]+)"),
    ("/etc/lockd/agent.pem", r"(?m)^[\w+/=]{20,}$"),
    ("/etc/lockd-master/users.acl", r"\s[#>](\S+)"),
    ("/etc/lockd-master/loader.password", r"\S+"),
    ("/etc/lockd-master/tls/master.key", r"(?m)^[\w+/=]{20,}$"),
    ("/etc/prometheus/prometheus.yml", KEYS),
    ("/etc/prometheus/alertmanager.yml", KEYS),
    ("/etc/prometheus/alertmanager.yml", r"://[^\s/\"']+/([^\s\"',{}]{6,})"),
    ("/etc/grafana/grafana.ini", r"(?im)^\s*\w*(?:password|secret\w*|token)\s*=\s*[\"']*(\S.*?)[\"']*\s*$"),
    ("/etc/grafana/lockd.key", r"(?m)^[\w+/=]{20,}$"),
)
NOT_SHOWN = "(not shown)"

NAMES = (
    "password|passwd|passphrase|secret|token|credential|authorization|rediscli_auth|api[_-]?key|masterauth"
)
# What looks like a secret: the first group stays, the rest is blotted out.
LOOKS_SECRET = (
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    # redis://user:password@host
    re.compile(r"(://[^\s:/@]*:)[^\s/@]+(?=@)"),
    # url: https://hooks.example.com/who/has/this/may/post
    re.compile(r"(?i)((?<!\w)(?:api_|webhook_)?url[\"']?\s*[:=]\s*[\"']?\w+://[^\s/\"']+/)[^\s\"']+"),
    # name: value, name = value, "name": "value", also with the value in the next line: to the end of its
    # line, as it may have spaces. Not the name of a file that has the value.
    re.compile(
        rf"(?i)((?<![\w.-])(?![\w.-]*file\b)[\w.-]*(?:{NAMES})[\w.-]*[\"']?\s*[:=]\s*(?:[|>][+-]?\s*\n\s*)?)\S.*"
    ),
    # Directives of redis.conf, options of redis-cli and its kin, and what clients say to Redis.
    re.compile(r"(?i)(\b(?:requirepass|masterauth|tls(?:-client)?-key-file-pass)\s+)\S.*"),
    re.compile(r"(?i)((?:^|\s)(?:-a|--pass|--password|--token)[ =])\s*\S+"),
    re.compile(r"(\bAUTH[\"']?\s+)\S.*"),
    # An ACL has hashes (#) and passwords (>).
    re.compile(r"(?i)((?:^|\s)#)[0-9a-f]{64}\b"),
    re.compile(r"(?m)(^\s*user \S+ .*?\s>)\S+.*"),
)


def main():
    secrets = secrets_of(SECRETS)
    for command in commands_of(sys.argv[1:]):
        print(f"=== {command}\n{without_secrets(output_of(command), secrets)}\n")


def commands_of(parts):
    """Each once: a host may be more than one thing."""
    wanted = [*COMMON]
    for part, _, url in (part.partition("=") for part in parts):
        wanted += [command.format(url=url) for command in PARTS[part]]
    return dict.fromkeys(wanted)


def output_of(command):
    try:
        done = subprocess.run(
            command.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}"
    return done.stdout.decode(errors="replace")


def secrets_of(places):
    found = set()
    for path, pattern in places:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found.update(re.findall(pattern, file.read()))
        except OSError:
            continue
    return found


def without_secrets(text, secrets=()):
    """A path to a password is none; a value is."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, NOT_SHOWN)
    for pattern in LOOKS_SECRET:
        text = pattern.sub(rf"\g<1>{NOT_SHOWN}", text)
    return text


if __name__ == "__main__":
    main()
