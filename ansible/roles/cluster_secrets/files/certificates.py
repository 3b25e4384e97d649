"""The authority and the certificates of a cluster, on the controller: what is wanted comes as JSON on the
standard input, what was written is said as JSON on the standard output. What is there and still good stays.

    {"folder": "...", "cluster": "...", "passphrase": "...", "ca_days": 3650, "days": 825,
     "masters": {"m1": "m1"}, "agents": ["app1"], "dry": false, "vault": [],
     "rotate": "", "own": false, "metrics": false}

It is one program, and not a dozen tasks for each host, as every run of site.yml runs it. It writes `ca.key`
(under the passphrase), `ca.pem`, and NAME.key and NAME.pem for each host.

The authority can do little, should its key be lost: it signs no other authority, no address, and no name but
those of the masters, which never change in the life of a cluster, and of agents
(`app1.agents.lockd.internal`), which no master's can be. A certificate of an agent is good for a client only:
no app host can play a master with it. Agents know a master by its name, so that it may move to another
address with the certificate that it has.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from secret_files import SecretFiles, write_whole

# What ends sooner is renewed.
RENEW_DAYS = 60
AGENTS = "agents.lockd.internal"
METRICS = "metrics"
# The authority that comes, while it does not sign yet.
NEXT = "ca.next"


class Unusable(Exception):
    """Something that is there can't be used; the text says what, and what to do."""


@dataclass(frozen=True)
class Wanted:
    """What the inventory asks for. `masters`: what each host's master is called; `dry`: say what would be
    written, no more; `vault`: what keys are encrypted with, as `SecretFiles` has it; `rotate`: a step
    towards another authority, by its name in ROTATION; `own`: nothing is made, and what is there is looked
    at; `metrics`: hosts that have a certificate for serving metrics, too; `absent`: hosts that the play
    leaves out, so nothing is brought to them."""

    folder: Path
    cluster: str
    passphrase: str
    ca_days: int
    days: int
    masters: Mapping[str, str]
    agents: list[str]
    dry: bool = False
    vault: list[list[str]] = field(default_factory=list)
    rotate: str = ""
    own: bool = False
    metrics: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)

    def hosts(self) -> list[str]:
        """Whose certificates there are."""
        return [*self.masters, *self.agents, *map(_metrics_of, self.metrics)]

    def present(self) -> list[str]:
        """Whose certificates the play needs."""
        return [name for name in self.hosts() if name not in (*self.absent, *map(_metrics_of, self.absent))]


def _metrics_of(host: str) -> str:
    return f"{host}.{METRICS}"


class Folder:
    """The files, and which of them were written."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._secrets = SecretFiles(wanted.vault)
        self.written: list[str] = []

    def key(self, name: str, passphrase: str | None = None) -> ec.EllipticCurvePrivateKey:
        """A key that is there stays, whatever it is: with a new one of the authority, all masters would be
        strangers. Raises Unusable."""
        path = self._wanted.folder / f"{name}.key"
        secret = passphrase.encode() if passphrase else None
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            under = serialization.BestAvailableEncryption(secret) if secret else serialization.NoEncryption()
            form = serialization.PrivateFormat.PKCS8
            self._write(self._secrets.write, path, key.private_bytes(serialization.Encoding.PEM, form, under))
            return key
        try:
            return serialization.load_pem_private_key(self._secrets.read(path), secret)
        except (ValueError, TypeError) as error:
            raise Unusable(
                f"{path} can't be read ({error}). Copy it, and for ca.key the passphrase in ca.password,"
                " from the controller that made the cluster, or from your backup. Nothing of the cluster"
                " was changed"
            ) from None

    def certificate(self, name: str) -> x509.Certificate | None:
        path = self._wanted.folder / f"{name}.pem"
        return x509.load_pem_x509_certificate(self._secrets.read(path)) if path.exists() else None

    def authorities(self) -> list[x509.Certificate]:
        """All that hosts believe, the one that signs first."""
        path = self._wanted.folder / "ca.pem"
        return x509.load_pem_x509_certificates(self._secrets.read(path)) if path.exists() else []

    def believe(self, authorities: list[x509.Certificate]) -> None:
        """In the place of those that are there."""
        if authorities != self.authorities():
            pem = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in authorities)
            self._write(write_whole, self._wanted.folder / "ca.pem", pem)

    def has_key(self, name: str) -> bool:
        return (self._wanted.folder / f"{name}.key").exists()

    def take_key(self, name: str, other: str) -> None:
        """`other`'s is that of `name` from now on."""
        self.written.append(f"{name}.key")
        if not self._wanted.dry:
            (self._wanted.folder / f"{other}.key").rename(self._wanted.folder / f"{name}.key")

    def keep(self, name: str, certificate: x509.Certificate) -> None:
        path = self._wanted.folder / f"{name}.pem"
        self._write(write_whole, path, certificate.public_bytes(serialization.Encoding.PEM))

    def _write(self, write: Callable[[Path, bytes], None], path: Path, content: bytes) -> None:
        self.written.append(path.name)
        if not self._wanted.dry:
            write(path, content)


def subject(wanted: Wanted, name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, f"lockd {wanted.cluster}"[:64]),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:64]),
        ]
    )


NO_ADDRESS = [x509.IPAddress(ipaddress.ip_network(every)) for every in ("0.0.0.0/0", "::/0")]


def permitted(wanted: Wanted) -> list[x509.GeneralName]:
    return [x509.DNSName(AGENTS), *map(x509.DNSName, sorted(wanted.masters.values()))]


@dataclass(frozen=True)
class Request:
    """One certificate as it should be."""

    subject: x509.Name
    extensions: tuple[tuple[x509.ExtensionType, bool], ...]
    days: int


def of_authority(wanted: Wanted) -> Request:
    return Request(
        subject(wanted, "authority"),
        (
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage(key_cert_sign=True, crl_sign=True), True),
            (x509.NameConstraints(permitted(wanted), NO_ADDRESS), True),
        ),
        wanted.ca_days,
    )


def of_host(wanted: Wanted, name: str) -> Request:
    called, purpose = f"{name}.{AGENTS}", ExtendedKeyUsageOID.CLIENT_AUTH
    if name in wanted.masters:
        called, purpose = wanted.masters[name], ExtendedKeyUsageOID.SERVER_AUTH
    elif name.endswith(f".{METRICS}"):
        # A name of its own: no host can serve another's metrics with it. And never a master's.
        purpose = ExtendedKeyUsageOID.SERVER_AUTH
    return Request(
        subject(wanted, name),
        (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(digital_signature=True), True),
            (x509.ExtendedKeyUsage([purpose]), False),
            (x509.SubjectAlternativeName([x509.DNSName(called)]), False),
        ),
        wanted.days,
    )


def _usage(**used: bool) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**(dict.fromkeys(every, False) | used))


def sign(
    request: Request, key: ec.EllipticCurvePrivateKey, issuer: x509.Name, by: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of hosts that differ from ours.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=request.days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    )
    for extension, critical in request.extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(by, hashes.SHA256())


def ends_soon(certificate: x509.Certificate) -> bool:
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    return left < timedelta(days=RENEW_DAYS)


def is_as(
    request: Request,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    by: ec.EllipticCurvePrivateKey,
) -> bool:
    """Whether a new one, signed with `by`, would say the same, apart from when it ends."""
    has = {extension.oid: extension.value for extension in certificate.extensions}
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
    return (
        certificate.subject == request.subject
        and has.get(x509.AuthorityKeyIdentifier.oid) == issuer
        and _public(certificate.public_key()) == _public(key.public_key())
        and all(has.get(extension.oid) == extension for extension, _ in request.extensions)
    )


def _public(key: Any) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def renew(wanted: Wanted, folder: Folder) -> None:
    """All that is to be there. Raises Unusable."""
    if wanted.rotate:
        ROTATION[wanted.rotate](wanted, folder)
    if folder.authorities() and not folder.has_key("ca"):
        wait_for_the_next(wanted, folder)
        return
    by = folder.key("ca", wanted.passphrase)
    request = of_authority(wanted)
    known = folder.authorities()
    # Its key stays: who has its old certificate believes what it signs now, and the other way round.
    mine = [one for one in known if is_as(request, one, by, by) and not ends_soon(one)]
    others = [one for one in known if _public(one.public_key()) != _public(by.public_key())]
    folder.believe([*(mine[:1] or [sign(request, by, request.subject, by)]), *others])
    for name in to_sign(wanted, folder, by):
        folder.keep(name, sign(of_host(wanted, name), folder.key(name), request.subject, by))


def wait_for_the_next(wanted: Wanted, folder: Folder) -> None:
    """The key of the authority that hosts believe is lost: nothing can be signed before they believe the next
    one. Raises Unusable."""
    if not folder.has_key(NEXT):
        raise Unusable(
            f"{wanted.folder}/ca.key is missing. Copy it, and ca.password, from the controller that made the"
            " cluster, or from your backup. If there is none, run recover_secrets.yml. Nothing of the cluster"
            " was changed"
        )
    missing = [
        name for name in wanted.present() if folder.certificate(name) is None or not folder.has_key(name)
    ]
    if missing:
        raise Unusable(
            f"{wanted.folder}: .pem or .key of {', '.join(missing)} is missing, and no authority can sign"
            " yet. Leave out such a host (-e absent=) until rotate_ca.yml has ended. Nothing of the cluster"
            " was changed"
        )


def introduce(wanted: Wanted, folder: Folder) -> None:
    """All are told of the next authority, and believe both. One that is under way goes on, unless its key is
    lost with that of the one before."""
    known = folder.authorities()
    if len(known) == 1 or (known and not folder.has_key("ca") and not folder.has_key(NEXT)):
        request, key = of_authority(wanted), folder.key(NEXT, wanted.passphrase)
        folder.believe([*known, sign(request, key, request.subject, key)])


def change_over(wanted: Wanted, folder: Folder) -> None:
    """It signs from now on, and all are signed by it."""
    if folder.has_key(NEXT) and len(folder.authorities()) > 1:
        folder.take_key("ca", NEXT)


def forget(wanted: Wanted, folder: Folder) -> None:
    """The one before is believed no more."""
    if not folder.has_key(NEXT):
        folder.believe(folder.authorities()[:1])


# After each of them all hosts have to be brought what has changed, before the next.
ROTATION = {"introduce": introduce, "change over": change_over, "forget": forget}


def look(wanted: Wanted, folder: Folder) -> None:
    """At what somebody else has made. Raises Unusable."""
    authorities = folder.authorities()
    for name in wanted.hosts():
        certificate = folder.certificate(name)
        if certificate is None or not folder.has_key(name):
            raise Unusable(f"{wanted.folder}: {name}.pem or {name}.key is missing. Nothing was changed")
        wrong = wrong_with(wanted, name, certificate, folder.key(name), authorities)
        if wrong:
            raise Unusable(f"{wanted.folder}/{name}.pem: {wrong}. Nothing was changed")


def wrong_with(
    wanted: Wanted,
    name: str,
    certificate: x509.Certificate,
    key: Any,
    authorities: list[x509.Certificate],
) -> str:
    """What keeps a host from using it; empty: nothing."""
    if _public(certificate.public_key()) != _public(key.public_key()):
        return f"it does not belong to {name}.key"
    if not any(signed_by(certificate, one) for one in authorities):
        return "none of the authorities in ca.pem has signed it"
    if certificate.not_valid_after_utc < datetime.now(UTC):
        return f"it ended on {certificate.not_valid_after_utc:%Y-%m-%d}"
    called = wanted.masters.get(name)
    return "" if called is None or called in names_in(certificate) else f"it lacks the DNS name {called}"


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def names_in(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.DNSName)


def to_sign(wanted: Wanted, folder: Folder, by: ec.EllipticCurvePrivateKey) -> Iterable[str]:
    """When one ends soon all are renewed: so none of an app host ends before those of the masters, whose ends
    are told to Prometheus."""
    hosts = wanted.hosts()
    there = {name: folder.certificate(name) for name in hosts}
    if any(ends_soon(one) for one in there.values() if one is not None):
        return hosts
    return [
        name
        for name, one in there.items()
        if one is None or not is_as(of_host(wanted, name), one, folder.key(name), by)
    ]


def main() -> int:
    wanted = Wanted(**{**(given := json.load(sys.stdin)), "folder": Path(given["folder"])})
    folder = Folder(wanted)
    try:
        (look if wanted.own else renew)(wanted, folder)
    except Unusable as why:
        print(why, file=sys.stderr)
        return 1
    print(json.dumps({"written": folder.written}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
