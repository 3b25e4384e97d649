"""Which commands only root may run."""

from __future__ import annotations

import re

FOR_ROOT = re.compile(
    r"^(?:journalctl |systemctl (?:start|stop|restart|reload|kill|enable|disable) .*[a-z]"
    r"|lockd-guard status|lockd check-config /etc"
    r"|lockctl (?:cluster|force-release|locks|master|masters|ping|reload)\b|redis-cli -s"
    r"|systemd-tmpfiles |systemd-machine-id-setup|reboot(?:$|[`;])|rm (?:-\w+ )*/"
    r"|(?:amtool check-config|openssl x509 .*|grep .*|ls .*) (?:/etc/lockd|/etc/prometheus/alertmanager))"
)
"""What refuses others or shows them nothing: units, the journal, what is for root and a group."""
