"""Outbound TLS trusts the public authorities, the platform's own and those of the tenant that has configured the address."""

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.exceptions import ImproperlyConfigured

from identity_platform import environment
from identity_platform.authorities import MOST_CERTIFICATES, check_authorities
from identity_platform.outbound import GuardedSession, Reach, get, post
from mfa.sms.gateway import HttpGateway, NotSent

LOOPBACK = Reach.of(["127.0.0.0/8"])


@dataclass(frozen=True)
class Authority:
    """A private certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def new_authority(name: str = "Test company CA") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    return Authority(key, signed(subject, key, issuer=None))


def signed(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, issuer: Authority | None, address: str = "127.0.0.1"
) -> x509.Certificate:
    moment = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName("localhost")]
    signing_key = issuer.key if issuer else key
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - datetime.timedelta(days=1))
        .not_valid_after(moment + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .sign(signing_key, hashes.SHA256())
    )


def with_tls(server: ThreadingHTTPServer, authority: Authority, folder: Path, *, address: str = "127.0.0.1") -> None:
    """Give a server a certificate that the authority has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    certificate = signed(subject, key, issuer=authority, address=address)
    chain = folder / "server.pem"
    chain.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    # Handshakes in the threads of the requests.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


@pytest.fixture
def site(authority: Authority, tmp_path: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.daemon_threads = True
    with_tls(server, authority, tmp_path)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def status(site: str, *, authorities: str = "") -> int:
    with GuardedSession(LOOPBACK, authorities=authorities) as session:
        return post(session, site, body=b"{}", headers={}, seconds=5).status


def test_private_authority_is_rejected_unless_configured(site: str, authority: Authority) -> None:
    with pytest.raises(requests.exceptions.SSLError):
        status(site)
    with pytest.raises(requests.exceptions.SSLError):
        status(site, authorities=new_authority("Another company").pem)
    assert status(site, authorities=authority.pem) == 204
    # Not remembered from the session before.
    with pytest.raises(requests.exceptions.SSLError):
        status(site)


def test_documents_are_read_with_the_same_authorities(site: str, authority: Authority) -> None:
    with GuardedSession(LOOPBACK, authorities=authority.pem) as session:
        assert get(session, site, headers={}, seconds=5, most=10).beginning == b"{}"


def test_name_in_the_certificate_is_still_verified(authority: Authority, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    with_tls(server, authority, tmp_path, address="127.0.0.2")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        with pytest.raises(requests.exceptions.SSLError):
            status(f"https://127.0.0.1:{server.server_port}/", authorities=authority.pem)
    finally:
        server.shutdown()
        server.server_close()


def test_authorities_of_the_platform_apply_to_all_calls(site: str, authority: Authority, settings: Any) -> None:
    settings.SMS_HTTP_URL = site
    with pytest.raises(NotSent):
        HttpGateway().send(to="+4915112345678", body="1", key="k")
    settings.OUTBOUND_CA = authority.pem
    assert status(site) == 204
    assert status(site, authorities=new_authority("A tenant's").pem) == 204
    HttpGateway().send(to="+4915112345678", body="1", key="k")


def test_platform_variable_is_read_from_a_file(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(authority.pem)
    monkeypatch.setenv("OUTBOUND_CA_FILE", str(file))
    assert environment.authorities("OUTBOUND_CA").strip() == authority.pem.strip()
    file.write_text("no certificate")
    with pytest.raises(ImproperlyConfigured, match="OUTBOUND_CA must hold certificates in PEM"):
        environment.authorities("OUTBOUND_CA")


def test_texts_that_are_no_certificates_are_rejected(authority: Authority) -> None:
    key = authority.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    for text in ("", "no pem", "é", key, authority.pem + key, authority.pem.replace("M", "N", 3)):
        with pytest.raises(ValueError, match=r"Send certificates"):
            check_authorities(text)
    with pytest.raises(ValueError, match="at most"):
        check_authorities("".join(new_authority(f"CA {n}").pem for n in range(MOST_CERTIFICATES + 1)))
    assert check_authorities(authority.pem.replace("\n", "\r\n")) == authority.pem
