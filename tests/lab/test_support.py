"""What a support bundle shows of a host, and what it blots out."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.programs import loaded
from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE

PLANTED = "pl4nted-Secret/with+signs"


@pytest.fixture(scope="module")
def support() -> Any:
    return loaded(ANSIBLE / "files/support.py")


@pytest.mark.parametrize(
    "text",
    [
        f"auth: {{username: lockd, password: {PLANTED}}}",
        f"auth: {{password_file: /etc/lockd/masters.password, password: {PLANTED}}}",
        f"  password: '{PLANTED} and more words of it'",
        f"password:\n  {PLANTED}",
        f"password: >-\n  {PLANTED}",
        f'{{"level": "info", "admin_password": "{PLANTED}"}}',
        f"requirepass {PLANTED}",
        f"masterauth {PLANTED}",
        f"tls-key-file-pass {PLANTED}",
        f"2026-01-01T00:00:00 m1 lockd[7]: event=odd password={PLANTED} why=x",
        f"REDISCLI_AUTH={PLANTED}",
        f"REDIS_PASSWORD={PLANTED}",
        f"Authorization: Bearer {PLANTED}",
        f"api-key = {PLANTED}",
        f"the master is rediss://lockd_exporter:{PLANTED.replace('/', '_')}@10.0.0.1:6379",
        f"redis-cli -a {PLANTED} PING",
        f"redis-cli --pass {PLANTED} PING",
        f"said AUTH lockd {PLANTED}",
        f"user lockd on >{PLANTED} ~lockd:*",
        f"api_url: https://hooks.example.com/{PLANTED}",
        f"- url: 'https://hooks.example.com/{PLANTED}'",
        f"admin_password = {PLANTED}",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
        f"-----BEGIN EC PRIVATE KEY-----\n{PLANTED}",
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(support: Any, text: str) -> None:
    clean = support.without_secrets(f"before\n{text}\n")
    assert PLANTED not in clean
    assert PLANTED.replace("/", "_") not in clean
    assert clean.startswith("before\n")
    assert "(not shown)" in clean


def test_a_hash_of_a_password_is_blotted_out(support: Any) -> None:
    assert "ab12" not in support.without_secrets(f"user lockd on #{'ab12' * 16} ~lockd:*")


@pytest.mark.parametrize(
    "text",
    [
        "auth: {username: lockd, password_file: /etc/lockd/masters.password}",
        "cluster: shop\nmasters:\n  - {name: m1, address: '10.0.0.1:6379'}",
        "aclfile /etc/lockd-master/users.acl",
        "NOAUTH Authentication required",
        "runbook_url: http://localhost:9098/LockdNoQuorum",
        "url: http://127.0.0.1:9090",
        "lockd-master.service - Lock master m1 of the cluster shop (Redis)",
    ],
)
def test_what_is_none_is_shown(support: Any, text: str) -> None:
    assert support.without_secrets(text) == text


def test_the_secrets_of_the_host_are_blotted_out_wherever_they_are(support: Any, tmp_path: Path) -> None:
    places = []
    receivers = (
        "receivers:\n- name: pager\n  pagerduty_configs:\n  - routing_key: pager6word\n"
        "- name: tickets\n  slack_configs:\n  - api_url: https://hooks.example.com/slack7word/x\n"
    )
    for number, (path, pattern) in enumerate(support.SECRETS):
        name = tmp_path / str(number)
        name.write_text(
            {
                "/etc/lockd/masters.password": "agent0word\n",
                "/etc/lockd/lockd.yml": 'auth: {username: lockd, password: "inline1word"}\n',
                "/etc/lockd/agent.pem": f"-----BEGIN PRIVATE KEY-----\n{'agen' * 8}\n-----END\n",
                "/etc/lockd-master/loader.password": "loader5word\n",
                "/etc/lockd-master/users.acl": f"user lockd on #{'3ac1' * 16} >acl3word ~*\n",
                "/etc/lockd-master/tls/master.key": f"-----BEGIN PRIVATE KEY-----\n{'key4' * 8}\n-----END\n",
                "/etc/prometheus/prometheus.yml": "basic_auth: {username: x, password: 'scrape8word'}\n",
                "/etc/prometheus/alertmanager.yml": receivers,
                "/etc/grafana/grafana.ini": "[security]\nadmin_user = admin\nadmin_password = graf9 word\n",
                "/etc/grafana/lockd.key": f"-----BEGIN PRIVATE KEY-----\n{'key0' * 8}\n-----END\n",
            }[path]
        )
        places.append((str(name), pattern))
    secrets = support.secrets_of([*places, (str(tmp_path / "is not there"), r"\S+")])
    words = {
        "agent0word", "inline1word", "agen" * 8, "3ac1" * 16, "acl3word", "key4" * 8, "loader5word",
        "pager6word", "slack7word/x", "scrape8word", "graf9 word", "key0" * 8,
    }  # fmt: skip
    assert secrets == words
    for word in words:
        assert support.without_secrets(f"somebody wrote {word} here", secrets) == (
            "somebody wrote (not shown) here"
        )


def test_a_host_that_is_two_things_shows_both_and_what_they_share_once(support: Any) -> None:
    commands = list(support.commands_of(["master", "agent", "prometheus=http://127.0.0.1:9090"]))
    for command in (
        "lockd-guard status",
        "lockctl doctor",
        "promtool query instant http://127.0.0.1:9090 up",
    ):
        assert command in commands
    assert commands.count("cat /etc/lockd/firewall.nft") == 1


def test_what_receivers_authenticate_with_is_not_read_for_show(support: Any) -> None:
    assert [one for one in support.ALERTMANAGER if one.startswith("cat") and "alertmanager.yml" in one] == []


# On this machine.

HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
INVENTORY: dict[str, Any] = {
    "lock_masters": {"hosts": {"m1": HERE}},
    "lock_apps": {"hosts": {"a1": HERE, "gone": {"ansible_host": "gone.invalid"}}},
    "lock_monitoring": {"hosts": {"m1": {}, "mon1": {**HERE, "lockd_grafana_enabled": False}}},
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the play said, what each host's file has, and what is left in the folder for temporary files."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": INVENTORY}}))
    (folder / "tmp").mkdir()
    done = local_ansible.run(
        "ansible-playbook", "-i", folder / "hosts.yml", ANSIBLE / "support_bundle.yml",
        "-e", f"support_bundle_to={folder}/b.tar.gz", TMPDIR=str(folder / "tmp"),
    )  # fmt: skip
    assert (folder / "b.tar.gz").exists(), done.stdout + done.stderr
    with tarfile.open(folder / "b.tar.gz") as archive:
        files = {Path(member.name).stem: archive.extractfile(member) for member in archive if member.isfile()}
        text = {host: file.read().decode() for host, file in files.items() if file}
    return done.stdout, text, [path.name for path in (folder / "tmp").glob("lockd-*")]


@local_ansible.needs_ansible
def test_the_bundle_has_a_file_of_each_host_and_nothing_is_left_behind(bundle: Any) -> None:
    said, text, left = bundle
    assert set(text) == {"m1", "a1", "gone", "mon1"}
    assert "=== lockctl doctor\n" in text["a1"]
    assert text["gone"].startswith("no answer: ")
    assert "The bundle is " in said
    assert left == []


@local_ansible.needs_ansible
def test_the_bundle_has_what_watches_over_the_cluster_where_lockd_runs_it(bundle: Any) -> None:
    _, text, _ = bundle
    for host, grafana in (("mon1", False), ("m1", True)):
        assert "=== cat /etc/prometheus/prometheus.yml\n" in text[host]
        assert "=== amtool --alertmanager.url=http://127.0.0.1:9093 config show\n" in text[host]
        assert "-u lockd-runbooks\n" in text[host]
        assert ("=== cat /etc/grafana/grafana.ini\n" in text[host]) is grafana
    assert "=== lockd-guard status\n" in text["m1"]
    assert "prometheus" not in text["a1"].partition("=== systemctl status")[2].partition("=== journalctl")[0]


@local_ansible.needs_ansible
def test_hosts_write_their_parts_side_by_side_and_no_task_goes_through_them_one_by_one(bundle: Any) -> None:
    said, _, _ = bundle
    written = said.partition("TASK [Write this host's file]")[2].partition("TASK [")[0]
    assert sorted(host for host in ("m1", "a1", "gone", "mon1") if f"[{host} -> localhost]" in written) == [
        "a1", "gone", "m1", "mon1",
    ]  # fmt: skip
    assert "(item=" not in said
