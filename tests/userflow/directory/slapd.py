"""A real OpenLDAP server that looks like an Active Directory: its attributes, its object ids, TLS by a test authority."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.machine.conftest import free_port
from tests.machine.groups import program
from tests.world import User

BASE = "DC=corp,DC=example"
READER = f"CN=reader,{BASE}"
SECRET = "reader's own secret"
ENABLED, DISABLED, NEVER_EXPIRES, NEVER_EXPIRES_DISABLED = 512, 514, 66048, 66050
_TEXT = "EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE"
# The attributes of Active Directory that matter here, with their syntaxes ([MS-ADA1] to [MS-ADA3]); objectGUID is octets.
ATTRIBUTES = {
    "objectGUID": (
        "1.2.840.113556.1.4.2",
        "EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 SINGLE-VALUE",
    ),
    "sAMAccountName": ("1.2.840.113556.1.4.221", _TEXT),
    "userPrincipalName": ("1.2.840.113556.1.4.656", _TEXT),
    "userAccountControl": (
        "1.2.840.113556.1.4.8",
        "EQUALITY integerMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.27 SINGLE-VALUE",
    ),
    "memberOf": ("1.2.840.113556.1.2.102", "EQUALITY distinguishedNameMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.12"),
    "displayName": ("1.2.840.113556.1.2.13", _TEXT),
    "department": ("1.2.840.113556.1.2.141", _TEXT),
    "objectCategory": ("1.2.840.113556.1.4.782", _TEXT),
}
SCHEMA = (
    "".join(f"attributetype ( {oid} NAME '{name}' {rest} )\n" for name, (oid, rest) in ATTRIBUTES.items())
    + "objectclass ( 1.2.840.113556.1.5.9 NAME 'user' SUP top STRUCTURAL MUST cn"
    + " MAY ( objectGUID $ sn $ givenName $ mail $ sAMAccountName $ userPrincipalName $ userAccountControl $ memberOf"
    + " $ displayName $ department $ objectCategory ) )\n"
)
# RFC 4511 section 4.6.
MOD_REPLACE = 2
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include {home}/active_directory.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {home}/slapd.pid
TLSCACertificateFile {home}/ca.pem
TLSCertificateFile {home}/server.pem
TLSCertificateKeyFile {home}/server.key
sizelimit size.soft=100 size.hard=100 size.pr=500 size.prtotal=unlimited
database mdb
suffix "{base}"
rootdn "{reader}"
rootpw "{secret}"
directory {home}/data
maxsize 268435456
dbnosync
limits dn.exact="{reader}" size.soft=100 size.hard=100 size.prtotal=unlimited
index objectClass eq
"""


@dataclass
class TestUser:
    """An entry of the directory."""

    number: int
    mail: str = ""
    status: int = ENABLED
    guid: UUID | None = field(default_factory=uuid4)
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def dn(self) -> str:
        return f"CN=Person {self.number},{BASE}"

    def values(self) -> dict[str, list[bytes]]:
        stated = {
            "cn": f"Person {self.number}",
            "displayName": f"Person {self.number}",
            "sAMAccountName": f"person{self.number}",
            "objectCategory": "person",
            "userAccountControl": str(self.status),
            **({"mail": self.mail} if self.mail else {}),
            **self.attributes,
        }
        values = {
            name: [text.encode() for text in (value if isinstance(value, list) else [value])]
            for name, value in stated.items()
        }
        known = {"objectGUID": [self.guid.bytes_le]} if self.guid else {}
        return {"objectClass": [b"user"], **known, **values}

    def ldif(self) -> str:
        lines = [f"dn: {self.dn}"]
        for name, values in self.values().items():
            lines += [f"{name}:: {base64.b64encode(value).decode()}" for value in values]
        return "\n".join(lines) + "\n\n"


def authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A certificate authority for tests."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key, certificate(f"Test authority {uuid4()}", key, None)


def certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[1].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer:
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer[0] if issuer else key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


class Slapd:
    """Start the server with these users on free ports."""

    def __init__(self, people: Iterable[TestUser]) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="slapd-"))
        (self.home / "data").mkdir()
        (self.home / "active_directory.schema").write_text(SCHEMA)
        issuer = authority()
        key = ec.generate_private_key(ec.SECP256R1())
        self.ca = pem(issuer[1])
        (self.home / "ca.pem").write_text(self.ca)
        (self.home / "server.pem").write_text(pem(certificate("localhost", key, issuer)))
        (self.home / "server.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        conf = self.home / "slapd.conf"
        conf.write_text(CONFIGURATION.format(home=self.home, base=BASE, reader=READER, secret=SECRET))
        base = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: corp\ndc: corp\n\n"
        (self.home / "people.ldif").write_text(base + "".join(person.ldif() for person in people))
        slapd = str(program("slapd"))
        loading = [slapd, "-T", "add", "-q", "-f", str(conf), "-l", str(self.home / "people.ldif")]
        loaded = subprocess.run(loading, capture_output=True, text=True)
        assert loaded.returncode == 0, loaded.stderr
        self.port, self.tls_port = free_port(), free_port()
        # The certificate is valid for localhost and 127.0.0.1, not for the other name.
        places = [f"ldap://127.0.0.1:{self.port}", *(f"ldaps://127.0.0.{n}:{self.tls_port}" for n in (1, 2))]
        listeners = " ".join(places)
        self.process = subprocess.Popen(
            [slapd, "-f", str(conf), "-h", listeners, "-d", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()
        # The optional package: without it these tests are skipped, but their modules are still imported.
        import ldap

        self.connection = ldap.initialize(f"ldap://127.0.0.1:{self.port}")
        self.connection.simple_bind_s(READER, SECRET)

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.tls_port), timeout=1).close()
                return
            except OSError:
                assert self.process.poll() is None, "slapd has ended"
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def add(self, person: TestUser) -> TestUser:
        self.connection.add_s(person.dn, list(person.values().items()))
        return person

    def change(self, person: TestUser, **attributes: str | None) -> None:
        """Replace attributes of an entry; None removes one."""
        changes = [
            (MOD_REPLACE, name, None if value is None else [value.encode()]) for name, value in attributes.items()
        ]
        self.connection.modify_s(person.dn, changes)

    def remove(self, person: TestUser) -> None:
        self.connection.delete_s(person.dn)

    def clear(self) -> None:
        """Remove all users."""
        for dn, _ in self.connection.search_ext_s(BASE, 2, "(objectClass=user)", ["cn"]):
            self.connection.delete_s(dn)

    def end(self) -> None:
        self.connection.unbind_s()
        self.process.terminate()
        self.process.wait(timeout=60)
        shutil.rmtree(self.home, ignore_errors=True)


def settings_of(running: Slapd, /, **more: Any) -> dict[str, Any]:
    """Return the fields of a configuration for this server over LDAPS."""
    return {
        "kind": "active_directory",
        "server": "localhost",
        "port": running.tls_port,
        "ca_certificate": running.ca,
        "base_dn": BASE,
        "bind_dn": READER,
        "secret": SECRET,
        **more,
    }


def as_person(user: dict[str, Any]) -> User:
    """Return a user of a response as a test user who can sign in."""
    return User(UUID(user["id"]), user["email"])
