"""Safety of LDAP connections: certificates, addresses, encryption, the bind user's secret."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tenants.conftest import ROOT
from tests.userflow.authorities import trust
from tests.userflow.directory import slapd as ad
from tests.userflow.directory.conftest import CONFIGS, Directory, counts
from tests.world import TestTenant

pytestmark = pytest.mark.needs("slapd", "python-ldap")


@pytest.fixture(scope="module")
def server() -> Iterator[ad.Slapd]:
    running = ad.Slapd([ad.TestUser(number, f"safe{number}@corp.example") for number in range(8)])
    yield running
    running.end()


class Listener:
    """A foreign server that stores what it receives."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.heard = b""
        self.connections = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(1)
                try:
                    self.heard += connection.recv(65_536)
                    connection.sendall(b"\x30\x0c\x02\x01\x01\x78\x07\x0a\x01\x02\x04\x00\x04\x00")
                    self.heard += connection.recv(65_536)
                except OSError:
                    pass

    def end(self) -> None:
        self.socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.end()


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
def test_ldaps_and_starttls_connect(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory], tls: str
) -> None:
    port = server.tls_port if tls == "ldaps" else server.port
    tried = configured(tenant, **ad.settings_of(server, tls=tls, port=port)).test()
    assert (tried["success"], len(tried["sample_users"])) == (True, 5), tried


def test_certificate_of_ip_address_is_verified(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    assert configured(tenant, **ad.settings_of(server, server="127.0.0.1")).test()["success"] is True


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
@pytest.mark.parametrize("trusted", ["another authority", "the system's"])
def test_untrusted_certificate_is_rejected(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory], tls: str, trusted: str
) -> None:
    port = server.tls_port if tls == "ldaps" else server.port
    authority = ad.pem(ad.authority()[1]) if trusted == "another authority" else ""
    directory = configured(tenant, **ad.settings_of(server, tls=tls, port=port, ca_certificate=authority))
    tried = directory.test()
    assert (tried["success"], "not trusted" in tried["message"]) == (False, True), tried
    assert tenant.api.post(f"{directory.path}/sync", {}).status_code == 502


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
def test_authority_of_the_tenant_is_trusted(
    server: ad.Slapd,
    new_tenant: Callable[[], TestTenant],
    tenant: TestTenant,
    configured: Callable[..., Directory],
    tls: str,
) -> None:
    port = server.tls_port if tls == "ldaps" else server.port
    home = new_tenant()
    trust(home, server.ca)
    fields = ad.settings_of(server, tls=tls, port=port, ca_certificate="")
    assert configured(home, **fields).test()["success"] is True
    assert configured(tenant, **fields).test()["success"] is False


def test_certificate_of_other_name_is_rejected(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    tried = configured(tenant, **ad.settings_of(server, server="127.0.0.2")).test()
    assert (tried["success"], "not trusted" in tried["message"]) == (False, True), tried


@pytest.mark.parametrize("tls", ["ldaps", "starttls"])
def test_server_without_tls_gets_no_secret(
    listener: Listener, server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory], tls: str
) -> None:
    tried = configured(tenant, **ad.settings_of(server, port=listener.port, tls=tls)).test()
    assert (tried["success"], listener.connections) == (False, 1)
    assert ad.SECRET.encode() not in listener.heard
    assert b"reader" not in listener.heard


def test_plain_ldap_is_rejected_unless_allowed(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory], settings: Any
) -> None:
    plain = ad.settings_of(server, name="Plain", tls="none", port=server.port)
    refused = tenant.api.post(CONFIGS, plain)
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["tls"])
    settings.DIRECTORY_ALLOW_PLAIN_LDAP = True
    directory = configured(tenant, **plain)
    assert directory.test()["success"] is True
    settings.DIRECTORY_ALLOW_PLAIN_LDAP = False
    assert directory.test()["success"] is False


def test_wrong_bind_secret_is_reported_not_repeated(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    tried = configured(tenant, **ad.settings_of(server, secret="not the reader's")).test()
    assert (tried["success"], "rejects the name or the secret" in tried["message"]) == (False, True)
    assert "not the reader's" not in str(tried)


def test_changed_server_never_gets_old_secret(
    listener: Listener, server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    directory = configured(tenant, **ad.settings_of(server))
    assert directory.change(port=listener.port).status_code == 400
    assert directory.change(server="127.0.0.1").status_code == 400
    assert directory.test()["success"] is True
    assert listener.connections == 0


FORBIDDEN = [
    "127.0.0.1",
    "localhost",
    "db.localhost",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::1",
]


@pytest.mark.parametrize("address", FORBIDDEN)
def test_private_directory_addresses_are_rejected(
    server: ad.Slapd, tenant: TestTenant, settings: Any, address: str
) -> None:
    settings.DIRECTORY_ALLOWED_NETWORKS = []
    refused = tenant.api.post(CONFIGS, ad.settings_of(server, name=f"To {address}", server=address))
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["server"])


def test_name_resolving_to_loopback_is_rejected(
    listener: Listener, server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory], settings: Any
) -> None:
    directory = configured(tenant, **ad.settings_of(server, port=listener.port))
    settings.DIRECTORY_ALLOWED_NETWORKS = []
    tried = directory.test()
    assert (tried["success"], "DIRECTORY_ALLOWED_NETWORKS" in tried["message"]) == (False, True)
    refused = tenant.api.post(f"{directory.path}/sync", {})
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["server"])
    assert listener.connections == 0


def test_unknown_base_and_bad_filter_are_reported(
    server: ad.Slapd, tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    assert "base_dn" in configured(tenant, **ad.settings_of(server, base_dn="DC=nowhere")).test()["message"]
    assert "base_dn" in configured(tenant, **ad.settings_of(server, base_dn="no dn at all")).test()["message"]
    assert "user_filter" in configured(tenant, **ad.settings_of(server, user_filter="(=)")).test()["message"]


def test_ldap_without_package_returns_501(tmp_path: Path) -> None:
    (tmp_path / "ldap.py").write_text("raise ImportError\n")
    script = (
        "import django; django.setup()\n"
        "from userflow.directory import ldap\n"
        "from userflow.errors import LdapNotInstalled\n"
        "assert ldap.ldap is None\n"
        "try: ldap.must_be_installed()\n"
        "except LdapNotInstalled as refused: print(refused.status, refused.text)\n"
    )
    known = os.environ | {
        "DJANGO_SETTINGS_MODULE": "identity_platform.settings",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
    }
    run = subprocess.run([sys.executable, "-P", "-c", script], env=known, capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.startswith("501 "), run.stderr
    assert "requirements/ldap.txt" in run.stdout


def test_two_directories_are_read_once_each(
    server: ad.Slapd, tenant: TestTenant, other_tenant: TestTenant, configured: Callable[..., Directory]
) -> None:
    mine, theirs = (configured(each, **ad.settings_of(server)) for each in (tenant, other_tenant))
    assert counts(mine.sync()) == counts(theirs.sync()) == (8, 8, 0, 0, 0, 0)
