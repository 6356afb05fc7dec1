"""Clients that authenticate with certificates and get tokens that are bound to them (RFC 8705)."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from django.conf import settings

from tests.openid.certificates import DAY, HEADER, SUBJECT, Authority, Certified, self_signed
from tests.openid.certified_application import (
    BOUND,
    BY_AUTHORITY,
    SELF_SIGNED,
    by_authority,
    by_own,
    call,
    client_of,
    own_token,
    sent_form,
)
from tests.openid.dpop_keys import DpopKey
from tests.openid.test_code_exchange import error_of
from tests.userflow.clients.keys import assertion, key_set, new_key, public_jwk
from tests.userflow.clients.test_assertions import TYPE
from tests.userflow.clients.test_clients import create
from tests.world import Api, TestTenant, capture_statements


@pytest.fixture(autouse=True)
def proxied(settings: Any) -> None:
    """The callers of these tests are proxies that pass certificates on."""
    settings.CLIENT_CERTIFICATE_HEADER, settings.CLIENT_CERTIFICATE_FORMAT = HEADER, "pem"
    settings.CLIENT_CERTIFICATE_PROXIES = [ip_network("10.0.0.0/8")]


@pytest.fixture(scope="module")
def authority() -> Authority:
    """The authority of the clients."""
    return Authority()


# --- client authentication -------------------------------------------------------------------------------------------


def test_self_signed_certificate_authenticates(tenant: TestTenant) -> None:
    first, second, other = self_signed(), self_signed(), self_signed()
    app = client_of(tenant, **by_own(first, second))
    for certified in (first, second):
        assert own_token(app, certified).status_code == 200
    assert error_of(own_token(app, other)) == "invalid_client"
    assert error_of(own_token(app)) == "invalid_client"


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("tls_client_auth_san_dns", "Client.example", x509.DNSName("client.example")),
        ("tls_client_auth_san_uri", "spiffe://a/b", x509.UniformResourceIdentifier("spiffe://a/b")),
        ("tls_client_auth_san_ip", "2001:db8:0::1", x509.IPAddress(ip_address("2001:db8::1"))),
        ("tls_client_auth_san_email", "a@example.com", x509.RFC822Name("a@example.com")),
    ],
    ids=["dns", "uri", "ip", "email"],
)
def test_alternative_name_authenticates(
    tenant: TestTenant, authority: Authority, field: str, value: str, name: x509.GeneralName
) -> None:
    app = client_of(tenant, **by_authority(authority, **{field: value}))
    assert own_token(app, authority.issue(SUBJECT, x509.DNSName("x.example"), name)).status_code == 200
    for rejected in (
        authority.issue(),
        authority.issue(SUBJECT, x509.DNSName("x.example")),
        authority.issue(f"CN={value}"),
    ):
        assert error_of(own_token(app, rejected)) == "invalid_client"


@pytest.mark.parametrize("subject", [SUBJECT, "CN=a\\, b,OU=x+UID=7,O=Example", "2.5.4.5=HRB 1,O=Example"])
def test_subject_authenticates(tenant: TestTenant, authority: Authority, subject: str) -> None:
    app = client_of(tenant, **by_authority(authority, tls_client_auth_subject_dn=subject))
    assert own_token(app, authority.issue(subject)).status_code == 200
    for other in ("CN=client", f"{SUBJECT},DC=x", "C=DE,O=Example,CN=client", "CN=CLIENT,O=Example,C=DE"):
        assert error_of(own_token(app, authority.issue(other))) == "invalid_client"


def test_certificate_of_another_authority_is_rejected(tenant: TestTenant, authority: Authority) -> None:
    app = client_of(tenant, **by_authority(authority))
    same_name = Authority()
    rejected = [
        same_name.issue(),
        self_signed(),
        authority.issue(since=-2 * DAY, until=-DAY),
        authority.issue(since=DAY),
        authority.issue(usage=ExtendedKeyUsageOID.SERVER_AUTH),
        Certified(authority.certificate, authority.key),
    ]
    for certified in rejected:
        assert error_of(own_token(app, certified)) == "invalid_client"
    assert own_token(app, authority.issue(usage=None)).status_code == 200


def test_expired_self_signed_certificate_is_rejected(tenant: TestTenant) -> None:
    expired, early = self_signed(since=-2 * DAY, until=-DAY), self_signed(since=DAY)
    app = client_of(tenant, **by_own(expired, early))
    for certified in (expired, early):
        assert error_of(own_token(app, certified)) == "invalid_client"


def test_certificate_of_another_client_is_rejected(
    tenant: TestTenant, other_tenant: TestTenant, authority: Authority
) -> None:
    own = authority.issue()
    app = client_of(tenant, **by_authority(authority))
    neighbor = client_of(tenant, **by_authority(authority, tls_client_auth_subject_dn="CN=other"))
    elsewhere = client_of(other_tenant, **by_authority(authority))
    assert own_token(app, own).status_code == 200
    assert error_of(own_token(neighbor, own)) == "invalid_client"
    # At the issuer of another tenant the client is unknown, although the certificate is right.
    for issuer, client in ((elsewhere.issuer, app), (app.issuer, elsewhere)):
        sent = {"grant_type": "client_credentials", "client_id": client.client["client_id"]}
        assert error_of(sent_form(f"{issuer}/token", own.headers, **sent)) == "invalid_client"


def test_every_endpoint_takes_a_certificate(tenant: TestTenant, authority: Authority) -> None:
    own = authority.issue()
    app = client_of(tenant, **by_authority(authority))
    token = own_token(app, own).json()["access_token"]
    assert call(app, "introspect", own, token=token).json()["active"] is True
    assert call(app, "par", own, **app.parameters()).status_code == 201
    assert call(app, "revoke", own, token=token).status_code == 200
    assert call(app, "introspect", own, token=token).json() == {"active": False}
    for endpoint in ("introspect", "revoke", "par"):
        assert error_of(call(app, endpoint, token="x")) == "invalid_client"
    sent = {"client_id": app.client["client_id"], "grant_type": "client_credentials"}
    assert sent_form("/authmgr/token", own.headers, **sent).status_code == 200
    assert error_of(sent_form("/authmgr/token", **sent)) == "invalid_client"


@pytest.mark.parametrize("beside", ["secret", "assertion", "basic"])
def test_other_credentials_do_not_stand_in(tenant: TestTenant, authority: Authority, beside: str) -> None:
    own, key = authority.issue(), new_key()
    app = client_of(tenant, **by_authority(authority), jwks=key_set(public_jwk(key)))
    proof = assertion(key, app.client["client_id"], f"{settings.TOKEN_ISSUER}{app.issuer}")
    sent: dict[str, dict[str, Any]] = {
        "secret": {"client_secret": "ics_x"},
        "assertion": {"client_assertion": proof, "client_assertion_type": TYPE},
        "basic": {"headers": {"Authorization": "Basic eDp5"}},
    }
    # With the certificate too: the client has authenticated in two ways.
    for certified in (own, None):
        assert own_token(app, certified, **sent[beside]).status_code in (400, 401)


def test_certificate_does_not_replace_another_method(tenant: TestTenant) -> None:
    own, key = self_signed(), new_key()
    by_key = client_of(
        tenant, token_endpoint_auth_method="private_key_jwt", jwks=key_set(own.jwk, public_jwk(key, kid="k"))
    )
    by_secret = client_of(tenant)
    for app in (by_key, by_secret):
        assert error_of(own_token(app, own)) == "invalid_client"
    proof = assertion(key, by_key.client["client_id"], f"{settings.TOKEN_ISSUER}{by_key.issuer}", headers={"kid": "k"})
    # A connection with a certificate changes nothing for those who authenticate otherwise.
    assert own_token(by_key, own, client_assertion=proof, client_assertion_type=TYPE).status_code == 200
    assert own_token(by_secret, own, client_secret=by_secret.client["client_secret"]).status_code == 200


def test_public_client_is_not_authenticated_by_a_certificate(tenant: TestTenant) -> None:
    own = self_signed()
    public = create(tenant, **{BOUND: True}).json()
    for address in (f"/t/{tenant.slug}/introspect", "/authmgr/token/introspect"):
        assert error_of(sent_form(address, own.headers, client_id=public["id"], token="x")) == "invalid_client"


# --- the header ------------------------------------------------------------------------------------------------------


def test_header_of_another_peer_is_ignored(tenant: TestTenant, settings: Any) -> None:
    own = self_signed()
    app = client_of(tenant, **by_own(own), **{BOUND: True})
    token = own_token(app, own).json()["access_token"]
    settings.CLIENT_CERTIFICATE_PROXIES = [ip_network("192.0.2.0/24")]
    assert error_of(own_token(app, own)) == "invalid_client"
    # X-Forwarded-For names no peer.
    forged = {"X-Forwarded-For": "192.0.2.1"}
    assert error_of(own_token(app, own, headers=forged)) == "invalid_client"
    assert Api(token=token).get("/authmgr/validate", headers=own.headers).status_code == 401


def test_header_is_ignored_without_the_setting(tenant: TestTenant, settings: Any) -> None:
    own = self_signed()
    app = client_of(tenant, **by_own(own))
    settings.CLIENT_CERTIFICATE_HEADER = ""
    assert error_of(own_token(app, own)) == "invalid_client"


FORMS: dict[str, Callable[[Certified], str]] = {
    "pem": lambda own: quote(own.pem, safe=""),
    "rfc9440": lambda own: f":{own.der}:",
    "xfcc": lambda own: f'By=spiffe://a;Hash=00;Subject="CN=\\"x\\",O=a;b";Cert="{quote(own.pem, safe="")}";URI=',
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_the_header(tenant: TestTenant, settings: Any, name: str) -> None:
    settings.CLIENT_CERTIFICATE_FORMAT = name
    own, other = self_signed(), self_signed()
    app = client_of(tenant, **by_own(own))

    def sent(value: str) -> int:
        return int(own_token(app, headers={HEADER: value}).status_code)

    assert sent(FORMS[name](own)) == 200
    wrong = [form_of(own) for form_of_name, form_of in FORMS.items() if form_of_name != name]
    # Two, as when a client sends one and the proxy appends its own.
    two = [f"{FORMS[name](first)},{FORMS[name](second)}" for first, second in ((own, other), (other, own), (own, own))]
    # One of Envoy may have more members.
    more = [] if name == "xfcc" else [f"{FORMS[name](own)}x"]
    for value in (*wrong, *two, *more, "", " ", ":", "::", "%", "x" * 20_000, own.pem.replace("\n", "")[:-9]):
        assert sent(value) == 401, value


# --- costs and metadata ----------------------------------------------------------------------------------------------


def test_certificates_cost_no_statement(tenant: TestTenant) -> None:
    own = self_signed()
    plain, bound = client_of(tenant), client_of(tenant, **by_own(own), **{BOUND: True})
    secret = plain.client["client_secret"]
    for app, sent in ((plain, {"client_secret": secret}), (bound, {"certified": own})):
        own_token(app, **sent)
    with capture_statements() as without:
        assert own_token(plain, client_secret=secret).status_code == 200
    with capture_statements() as with_certificate:
        assert own_token(bound, own).status_code == 200
    assert with_certificate.counts == without.counts


def test_metadata_lists_what_works(tenant: TestTenant, settings: Any) -> None:
    address = f"/t/{tenant.slug}/.well-known/openid-configuration"
    known = Api().get(address).json()
    assert known["tls_client_certificate_bound_access_tokens"] is True
    assert "mtls_endpoint_aliases" not in known
    for name in ("token", "revocation", "introspection"):
        assert {BY_AUTHORITY, SELF_SIGNED} <= set(known[f"{name}_endpoint_auth_methods_supported"])
    settings.MTLS_BASE_URL = "https://mtls.id.example"
    aliases = Api().get(address).json()["mtls_endpoint_aliases"]
    assert aliases["token_endpoint"] == f"https://mtls.id.example/t/{tenant.slug}/token"
    assert aliases["pushed_authorization_request_endpoint"] == f"https://mtls.id.example/t/{tenant.slug}/par"
    settings.CLIENT_CERTIFICATE_HEADER = ""
    without = Api().get(address).json()
    assert not {"tls_client_certificate_bound_access_tokens", "mtls_endpoint_aliases"} & without.keys()
    for document in (without, Api().get("/.well-known/oauth-authorization-server").json()):
        for name in ("token", "revocation", "introspection"):
            assert not {BY_AUTHORITY, SELF_SIGNED} & set(document[f"{name}_endpoint_auth_methods_supported"])


def test_second_address_is_one_of_the_platform(tenant: TestTenant, settings: Any) -> None:
    settings.MTLS_BASE_URL = "https://mtls.id.example"
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "mtls.id.example"]
    own, key = self_signed(), DpopKey()
    app = client_of(tenant, **by_own(own), dpop_bound_access_tokens=True)
    proof = key.proof("POST", "", htu=f"https://mtls.id.example{app.issuer}/token")
    assert own_token(app, own, headers={"Host": "mtls.id.example", "DPoP": proof}).status_code == 200
