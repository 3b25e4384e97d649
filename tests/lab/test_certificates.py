"""The certificates of masters and agents, as cluster_secrets makes them on the controller: renewed in time,
by the same authority for ever, which can do no more than it has to."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.lab import local_ansible
from tests.lab.inventory import ANSIBLE
from tests.lab.waiting import PATIENCE_S

PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.include_role": {"name": "cluster_secrets", "tasks_from": "tls"}}],
    }
]


@pytest.fixture
def site(tmp_path: Path, ansible: None) -> Callable[..., str]:
    """What any run of site.yml does about certificates, into tmp_path/tls; `words` are more for Ansible."""
    pytest.importorskip("cryptography", reason="no cryptography here: make test-lab")
    (tmp_path / "play.yml").write_text(yaml.safe_dump(PLAY))
    variables = {
        "lockd_cluster_secrets_dir": str(tmp_path), "lockd_cluster": "certified",
        "lockd_cluster_secrets_ca_password": PASSPHRASE,
        "ansible_python_interpreter": sys.executable,
    }  # fmt: skip
    masters = {"hosts": {"m1": {"ansible_host": "10.77.0.11"}, "m2": {"ansible_host": "10.77.0.12"}}}
    groups = {"lock_masters": masters, "lock_apps": {"hosts": {"a1": {}}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"vars": variables, "children": groups}}))

    def run(*words: str, status: int = 0) -> str:
        done = local_ansible.run(
            "ansible-playbook", "-i", tmp_path / "hosts.yml", tmp_path / "play.yml", *words
        )
        assert (done.returncode != 0) == bool(status), done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What it makes, by its program alone: for tests that only look, or play the thief."""
    pytest.importorskip("cryptography", reason="no cryptography here: make test-lab")
    folder = tmp_path_factory.mktemp("made")
    (folder / "tls").mkdir()
    wanted = {
        "folder": f"{folder}/tls", "cluster": "certified", "passphrase": PASSPHRASE, "ca_days": 3650,
        "days": 825, "masters": {"m1": "m1", "m2": "m2"}, "agents": ["a1"],
    }  # fmt: skip
    subprocess.run(
        [sys.executable, PROGRAM], input=json.dumps(wanted).encode(), check=True, timeout=PATIENCE_S
    )
    return folder


PROGRAM = ANSIBLE / "roles/cluster_secrets/files/certificates.py"
PASSPHRASE = "words that open the key"
HOSTS = ("m1", "m2", "a1")


def files(folder: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tls").glob(pattern)}


def days_left(certificate: Path, days: int) -> bool:
    """Whether it is still good in so many days."""
    look = ["openssl", "x509", "-noout", "-checkend", str(days * 86_400), "-in", str(certificate)]
    return subprocess.run(look, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0


def believed(certificate: Path, authority: Path, *words: str) -> bool:
    look = ["openssl", "verify", "-x509_strict", *words, "-CAfile", str(authority), str(certificate)]
    return subprocess.run(look, capture_output=True, check=False, timeout=PATIENCE_S).returncode == 0


def test_certificates_that_are_good_for_long_stay(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    before = files(tmp_path, "*")
    assert set(before) == {f"{name}.{end}" for name in ("ca", *HOSTS) for end in ("key", "pem")}
    assert " changed=0 " in site()
    assert files(tmp_path, "*") == before


def test_one_that_ends_within_sixty_days_is_renewed_with_its_key(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site("-e", "lockd_cluster_secrets_certificate_days=59")
    short, keys = files(tmp_path, "*.pem"), files(tmp_path, "*.key")
    site()
    renewed = files(tmp_path, "*.pem")
    assert {name for name in short if renewed[name] != short[name]} == {"m1.pem", "m2.pem", "a1.pem"}
    assert files(tmp_path, "*.key") == keys
    assert days_left(tmp_path / "tls/m1.pem", 800)


def test_a_renewed_authority_and_the_one_before_believe_the_same_masters(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site("-e", "lockd_cluster_secrets_ca_days=59")
    before = tmp_path / "before.pem"
    before.write_bytes((tmp_path / "tls/ca.pem").read_bytes())
    (tmp_path / "m1-before.pem").write_bytes((tmp_path / "tls/m1.pem").read_bytes())
    (tmp_path / "tls/m2.pem").unlink()
    site()
    assert days_left(tmp_path / "tls/ca.pem", 3000)
    assert not days_left(before, 60)
    for authority in (before, tmp_path / "tls/ca.pem"):
        assert believed(tmp_path / "m1-before.pem", authority)
        assert believed(tmp_path / "tls/m2.pem", authority)


def test_a_key_that_cannot_be_read_is_never_made_anew(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    (tmp_path / "tls/ca.key").write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    before = files(tmp_path, "*")
    said = " ".join(site(status=2).split())
    assert "ca.key is encrypted, and no vault password of this run decrypts it" in said
    (tmp_path / "tls/ca.key").write_text("no key at all\n")
    assert "ca.key can't be read" in site(status=2)
    assert files(tmp_path, "*.pem") == {name: text for name, text in before.items() if name.endswith(".pem")}


def test_a_new_app_host_gets_its_own_and_no_other_is_touched(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site()
    before = files(tmp_path, "*")
    hosts = yaml.safe_load((tmp_path / "hosts.yml").read_text())
    hosts["all"]["children"]["lock_apps"]["hosts"]["a2"] = {}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(hosts))
    site()
    after = files(tmp_path, "*")
    assert set(after) - set(before) == {"a2.key", "a2.pem"}
    assert {name: after[name] for name in before} == before
    assert believed(tmp_path / "tls/a2.pem", tmp_path / "tls/ca.pem")


def test_check_mode_says_what_it_would_make_and_makes_nothing(
    site: Callable[..., str], tmp_path: Path
) -> None:
    assert " changed=2 " in site("--check")
    assert not (tmp_path / "tls").exists()


def test_a_master_that_moves_keeps_its_certificate(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    before = files(tmp_path, "*")
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(inventory.read_text().replace("10.77.0.12", "10.77.0.99"))
    assert " changed=0 " in site()
    assert files(tmp_path, "*") == before


def test_an_app_host_can_play_no_master_nor_a_master_an_agent(made: Path) -> None:
    authority = made / "tls/ca.pem"
    assert believed(made / "tls/a1.pem", authority, "-purpose", "sslclient")
    assert not believed(made / "tls/a1.pem", authority, "-purpose", "sslserver")
    assert believed(made / "tls/m1.pem", authority, "-purpose", "sslserver", "-verify_hostname", "m1")
    assert not believed(made / "tls/m1.pem", authority, "-purpose", "sslclient")
    assert not believed(made / "tls/m1.pem", authority, "-verify_hostname", "m2")


def signed(folder: Path, name: str, extensions: str) -> Path:
    """What a thief of the authority's key could sign."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)

    (folder / "ext").write_text(extensions)
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}")
    openssl(*new, "-keyout", "thief.key", "-out", "thief.csr")
    by = ("-CA", "tls/ca.pem", "-CAkey", "tls/ca.key", "-passin", f"pass:{PASSPHRASE}")
    openssl("x509", "-req", "-in", "thief.csr", *by, "-days", "9", "-extfile", "ext", "-out", f"{name}.pem")
    return folder / f"{name}.pem"


@pytest.mark.parametrize(
    ("extensions", "good"),
    [
        ("subjectAltName=DNS:m1", True),
        ("subjectAltName=DNS:bank.example.com", False),
        ("subjectAltName=DNS:m1,IP:10.77.0.11", False),
        ("subjectAltName=IP:fd00::1", False),
    ],
)
def test_the_authority_signs_nothing_but_its_own_masters_and_agents(
    made: Path, extensions: str, good: bool
) -> None:
    assert believed(signed(made, "thief", extensions), made / "tls/ca.pem") == good


def test_nor_another_authority(made: Path) -> None:
    below = signed(made, "below", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign")
    (made / "below.key").write_bytes((made / "thief.key").read_bytes())
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    by = ["-CA", "below.pem", "-CAkey", "below.key", "-subj", "/CN=m1", "-addext", "subjectAltName=DNS:m1"]
    words = [*new, *by, "-keyout", "m1.key", "-out", "m1.pem"]
    subprocess.run(words, cwd=made, check=True, capture_output=True, timeout=PATIENCE_S)
    assert not believed(made / "m1.pem", made / "tls/ca.pem", "-untrusted", str(below))


def test_its_key_is_nothing_without_the_passphrase(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    assert b"ENCRYPTED PRIVATE KEY" in (tmp_path / "tls/ca.key").read_bytes()
    before = files(tmp_path, "*")
    assert "ca.password" in site("-e", "lockd_cluster_secrets_ca_password=others", status=2)
    assert files(tmp_path, "*") == before


def test_a_passphrase_that_was_lost_is_not_made_up(site: Callable[..., str], tmp_path: Path) -> None:
    whole = PLAY[0] | {"tasks": [{"ansible.builtin.include_role": {"name": "cluster_secrets"}}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([whole]))
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(inventory.read_text().replace("lockd_cluster_secrets_ca_password", "unused"))
    site()
    made, key = tmp_path / "ca.password", (tmp_path / "tls/ca.key").read_bytes()
    assert len(made.read_text().strip()) == 40
    made.unlink()
    said = " ".join(site(status=2).split())
    assert "ca.key can't be read" in said
    assert "from your backup" in said
    assert not made.exists()
    assert (tmp_path / "tls/ca.key").read_bytes() == key


def rotates(site: Callable[..., str], folder: Path, step: str) -> dict[str, bytes]:
    site("-e", json.dumps({"lockd_cluster_secrets_rotate": step}))
    return files(folder, "*")


def copied(folder: Path, name: str) -> Path:
    """The folder's certificates as hosts have them now."""
    to = folder / name
    to.mkdir()
    for path in (folder / "tls").glob("*.pem"):
        (to / path.name).write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize("lost", [False, True], ids=["to change it", "since its key is lost"])
def test_with_each_step_towards_another_authority_hosts_before_and_after_it_believe_each_other(
    site: Callable[..., str], tmp_path: Path, lost: bool
) -> None:
    site()
    stages = [copied(tmp_path, "before")]
    if lost:
        (tmp_path / "tls/ca.key").unlink()
    for step in ("introduce", "change over", "forget"):
        once = rotates(site, tmp_path, step)
        assert " changed=0 " in site(), "a plain site.yml leaves it as it is"
        assert rotates(site, tmp_path, step) == once or step == "introduce"
        stages.append(copied(tmp_path, step.replace(" ", "-")))
    for one, next_one in pairwise(stages):
        for here, there in ((one, next_one), (next_one, one)):
            for name in HOSTS:
                assert believed(here / f"{name}.pem", there / "ca.pem"), (name, here, there)
    assert not believed(stages[-1] / "m1.pem", stages[0] / "ca.pem")
    assert not believed(stages[0] / "m1.pem", stages[-1] / "ca.pem")
    assert not (tmp_path / "tls/ca.next.key").exists()


def test_without_the_key_of_the_authority_nothing_is_signed_and_it_says_what_to_do(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site()
    (tmp_path / "tls/ca.key").unlink()
    before = files(tmp_path, "*")
    said = " ".join(site(status=2).split())
    assert "ca.key is missing" in said
    assert "recover_secrets.yml" in said
    assert files(tmp_path, "*") == before
    rotates(site, tmp_path, "introduce")
    (tmp_path / "tls/a1.pem").unlink()
    assert ".pem or .key of a1 is missing, and no authority can sign yet" in " ".join(site(status=2).split())


def test_a_host_that_is_left_out_needs_no_certificate_until_the_next_authority_signs(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site()
    (tmp_path / "tls/ca.key").unlink()
    rotates(site, tmp_path, "introduce")
    for lost in files(tmp_path, "a1.*"):
        (tmp_path / "tls" / lost).unlink()
    hosts = tmp_path / "hosts.yml"
    document = yaml.safe_load(hosts.read_text())
    document["all"]["children"]["lock_present"] = {"hosts": {"m1": {}, "m2": {}}}
    hosts.write_text(yaml.safe_dump(document))
    assert " changed=0 " in site()
    rotates(site, tmp_path, "change over")
    assert believed(tmp_path / "tls/a1.pem", tmp_path / "tls/ca.pem")


def test_hosts_have_a_certificate_for_metrics_only_where_something_of_lockd_serves_them(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site("-e", json.dumps({"lockd_metrics_tls": True, "lockd_node_exporter_enabled": False}))
    assert set(files(tmp_path, "*.metrics.pem")) == {"a1.metrics.pem"}
    site("-e", json.dumps({"lockd_metrics_tls": True}))
    assert set(files(tmp_path, "*.metrics.pem")) == {f"{name}.metrics.pem" for name in HOSTS}
    for name in HOSTS:
        shown = x509.load_pem_x509_certificate((tmp_path / f"tls/{name}.metrics.pem").read_bytes())
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [f"{name}.metrics.agents.lockd.internal"]


def test_a_next_authority_whose_key_is_lost_too_is_followed_by_another(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site()
    rotates(site, tmp_path, "introduce")
    for name in ("ca.key", "ca.next.key"):
        (tmp_path / "tls" / name).unlink()
    before = copied(tmp_path, "before")
    for step in ("introduce", "change over"):
        rotates(site, tmp_path, step)
    assert believed(tmp_path / "tls/m1.pem", tmp_path / "tls/ca.pem")
    assert believed(before / "m1.pem", tmp_path / "tls/ca.pem")


def on_host(*paths: Path) -> str:
    return b64encode(b"\n".join(path.read_bytes() for path in paths)).decode()


def fetch(folder: Path, hosts: dict[str, dict[str, str]]) -> list[str]:
    role = ANSIBLE / "roles/cluster_secrets"
    program = role / "files/fetched.py"
    places = yaml.safe_load((role / "vars/main.yml").read_text())["lockd_cluster_secrets_on_hosts"]
    masters = [host for host in hosts if host.startswith("m")]
    asked = {"folder": str(folder), "vault": [], "places": places, "masters": masters, "hosts": hosts}
    done = subprocess.run(
        [sys.executable, program], input=json.dumps(asked), capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SHARED = "/etc/lockd-master/tls/ca.pem"
EVERYBODYS, ANOTHERS = (b64encode(text).decode() for text in (b"everybody's\n", b"another's\n"))


def test_the_authority_is_never_taken_from_an_app_host(tmp_path: Path) -> None:
    """Root there could have everybody believe another one."""
    password = "/etc/lockd-master/loader.password"
    assert fetch(tmp_path, {"a1": {SHARED: ANOTHERS, password: ANOTHERS}, "m1": {SHARED: EVERYBODYS}}) == [
        "tls/ca.pem"
    ]
    assert (tmp_path / "tls/ca.pem").read_text() == "everybody's\n"


def test_what_masters_share_is_what_most_of_them_have(tmp_path: Path) -> None:
    lost, well = {SHARED: ANOTHERS}, {SHARED: EVERYBODYS}
    with pytest.raises(AssertionError, match=r"the masters differ in tls/ca\.pem"):
        fetch(tmp_path, {"m1": lost, "m2": well})
    assert not (tmp_path / "tls").exists()
    assert fetch(tmp_path, {"m1": lost, "m2": well, "m3": well}) == ["tls/ca.pem"]
    assert (tmp_path / "tls/ca.pem").read_text() == "everybody's\n"


def test_what_hosts_have_is_written_down_as_it_was_and_what_is_there_is_left_alone(
    made: Path, tmp_path: Path
) -> None:
    tls, folder = made / "tls", tmp_path / "secrets"
    (tmp_path / "password").write_text("secret\n")
    hosts = {
        "m1": {
            "/etc/lockd-master/tls/ca.pem": on_host(tls / "ca.pem"),
            "/etc/lockd-master/tls/master.pem": on_host(tls / "m1.pem"),
            "/etc/lockd-master/tls/master.key": on_host(tls / "m1.key"),
            "/etc/prometheus/lockd-exporter/metrics.pem": on_host(tls / "m2.pem", tls / "m2.key"),
        },
        "a1": {
            "/etc/lockd/agent.pem": on_host(tls / "a1.pem", tls / "a1.key"),
            "/etc/lockd/masters.password": on_host(tmp_path / "password"),
        },
    }
    folder.mkdir()
    written = fetch(folder, hosts)
    assert sorted(written) == sorted(
        [
            "agents/a1.password", "tls/ca.pem", "tls/m1.pem", "tls/m1.key", "tls/m1.metrics.pem",
            "tls/m1.metrics.key", "tls/a1.pem", "tls/a1.key",
        ]
    )  # fmt: skip
    for name in written:
        if name.startswith("tls/"):
            source = made / name.replace("m1.metrics", "m2")
            assert (folder / name).read_bytes() == source.read_bytes(), name
    assert (folder / "agents/a1.password").read_text() == "secret\n"
    assert {(folder / name).stat().st_mode & 0o777 for name in written} == {0o600}
    (folder / "tls/m1.key").write_text("mine\n")
    assert fetch(folder, hosts) == []
    assert (folder / "tls/m1.key").read_text() == "mine\n"


def test_steps_out_of_their_order_change_nothing(site: Callable[..., str], tmp_path: Path) -> None:
    site()
    before = files(tmp_path, "*")
    assert rotates(site, tmp_path, "change over") == before
    assert rotates(site, tmp_path, "forget") == before
    introduced = rotates(site, tmp_path, "introduce")
    assert rotates(site, tmp_path, "introduce") == introduced
    assert rotates(site, tmp_path, "forget") == introduced


OWN = ("-e", "lockd_cluster_secrets_own=true")


def test_certificates_of_somebody_else_are_looked_at_and_left_alone(
    site: Callable[..., str], tmp_path: Path
) -> None:
    site("-e", "lockd_cluster_secrets_certificate_days=9")
    (tmp_path / "tls/ca.key").unlink()
    before = files(tmp_path, "*")
    assert " changed=0 " in site(*OWN)
    assert files(tmp_path, "*") == before


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ("m2.pem", "m2.pem or m2.key is missing"),
        ("a1.key", "a1.pem or a1.key is missing"),
        ("m1.pem <- m2.pem", "it does not belong to m1.key"),
        ("m1.* <- a1.*", "it lacks the DNS name m1"),
        ("ca.pem <- m2.pem", "none of the authorities in ca.pem has signed it"),
    ],
)
def test_certificates_of_somebody_else_that_hosts_could_not_use_are_named(
    site: Callable[..., str], tmp_path: Path, spoilt: str, said: str
) -> None:
    site()
    tls = tmp_path / "tls"
    to, _, source = spoilt.partition(" <- ")
    if not source:
        (tls / to).unlink()
    for end in ("pem", "key") if "*" in to else ():
        (tls / to.replace("*", end)).write_bytes((tls / source.replace("*", end)).read_bytes())
    if source and "*" not in to:
        (tls / to).write_bytes((tls / source).read_bytes())
    assert said in " ".join(site(*OWN, status=2).split())
