"""Which redirect URIs a client may register, and which ones a request may state."""

import pytest

from tests.copies import change_client
from tests.userflow.clients.test_clients import create, path
from tests.world import TestTenant
from userflow.clients.redirects import matches

WEB = "https://app.example/callback?tenant=a"


@pytest.mark.parametrize(
    ("registered", "presented"),
    [
        (WEB, WEB),
        ("com.example.app:/oauth", "com.example.app:/oauth"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb"),
        ("http://127.0.0.1:3000/cb", "http://127.0.0.1:51234/cb"),
        ("http://127.0.0.1:3000/cb", "http://127.0.0.1/cb"),
        ("http://[::1]:3000/cb?x=1", "http://[::1]:51234/cb?x=1"),
        ("http://localhost", "http://localhost:51234"),
    ],
)
def test_redirect_uri_matches_exactly_save_loopback_port(registered: str, presented: str) -> None:
    assert matches(["https://other.example/", registered], presented)


@pytest.mark.parametrize(
    ("registered", "presented"),
    [
        (WEB, "https://app.example/callback"),
        (WEB, WEB + "&x=1"),
        (WEB, WEB + "#x"),
        (WEB, "https://app.example:443/callback?tenant=a"),
        (WEB, "https://APP.example/callback?tenant=a"),
        (WEB, "https://app.example/%63allback?tenant=a"),
        ("https://127.0.0.1/cb", "https://127.0.0.1:444/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb/"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234/cb#x"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:51234@evil.example/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1.evil.example/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:0/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:65536/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:٣/cb"),
        ("http://127.0.0.1/cb", "http://localhost:51234/cb"),
        ("http://127.0.0.1/cb", "http://[::1]:51234/cb"),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5/cb\n"),
        ("com.example.app:/oauth", "com.example.app:/oauth/"),
    ],
)
def test_other_redirect_uri_does_not_match(registered: str, presented: str) -> None:
    assert not matches([registered], presented)
    assert not matches([], presented)


def test_scheme_without_a_dot_is_rejected(tenant: TestTenant) -> None:
    response = create(tenant, redirect_uris=["myapp://callback"])
    assert (response.status_code, list(response.json()["details"])) == (400, ["redirect_uris[0]"])


def test_update_keeps_redirect_uri_of_earlier_rules(tenant: TestTenant) -> None:
    client = create(tenant).json()["id"]
    change_client(client, redirect_uris=["myapp://callback"])
    both = ["myapp://callback", "com.example.app:/callback"]
    assert tenant.api.patch(path(tenant, client), {"redirect_uris": both}).json()["redirect_uris"] == both
    assert tenant.api.patch(path(tenant, client), {"redirect_uris": ["other://callback"]}).status_code == 400
