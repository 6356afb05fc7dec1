"""Discovery: a provider's host can send anything; the result is valid metadata, or one error with its reason."""

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from federation.upstream import discovery
from federation.upstream.cached_documents import FAILED_SECONDS, FRESH_SECONDS
from federation.upstream.discovery import fetch_metadata, metadata_of, read_metadata
from federation.upstream.errors import Reason, UpstreamError
from tests.federation.upstream.provider import DISCOVERY, Provider, Response
from tests.federation.upstream.visits import client_of, failure, let_time_pass, reason, sign_in
from tests.identity_platform.test_authorities import new_authority, with_tls

HTML = {"Content-Type": "text/html"}


def fetch_reason(provider: Provider) -> Reason:
    with pytest.raises(UpstreamError) as caught:
        fetch_metadata(provider.issuer)
    return caught.value.reason


def test_metadata_of_a_provider(provider: Provider) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    metadata = fetch_metadata(provider.issuer)
    assert metadata.token_endpoint == f"{provider.issuer}/token"
    assert metadata.names_issuer_in_callback is True
    assert "private_key_jwt" in metadata.token_endpoint_auth_methods


@pytest.mark.parametrize("issuer", ["https://attacker.example", None, ["x"], 1, ""])
def test_other_issuer_is_rejected(provider: Provider, issuer: Any) -> None:
    provider.metadata = {"issuer": issuer}
    assert fetch_reason(provider) == Reason.METADATA_ISSUER_MISMATCH


def test_issuer_with_another_ending_is_rejected(provider: Provider) -> None:
    provider.metadata = {"issuer": f"{provider.issuer}/"}
    with pytest.raises(UpstreamError) as caught:
        fetch_metadata(provider.issuer)
    assert (caught.value.expected, caught.value.received) == (provider.issuer, f"{provider.issuer}/")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (Response(200, b"<!doctype html><title>Sign in</title>", HTML), Reason.RESPONSE_NOT_JSON),
        (Response(200, b""), Reason.RESPONSE_NOT_JSON),
        (Response(200, b"\xff\xfe"), Reason.RESPONSE_NOT_JSON),
        (Response(200, b"[" * 100_000), Reason.RESPONSE_NOT_JSON),
        (Response(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}), Reason.RESPONSE_NOT_JSON),
        (Response(200, b"[]"), Reason.METADATA_INVALID),
        (Response(200, b"null"), Reason.METADATA_INVALID),
        (Response(500, b"{}"), Reason.STATUS_UNEXPECTED),
        (Response(404, b"<html>", HTML), Reason.STATUS_UNEXPECTED),
        (Response(204, b""), Reason.STATUS_UNEXPECTED),
        (Response(302, b"", {"Location": "/moved"}), Reason.REDIRECTED),
        (Response(307, b"", {"Location": "http://169.254.169.254/"}), Reason.REDIRECTED),
        (Response(200, b" " * 200_000), Reason.RESPONSE_TOO_LONG),
        (Response(200, b'{"issuer": ', {"Content-Length": "1000"}), Reason.RESPONSE_NOT_JSON),
    ],
    ids=lambda value: value.value if isinstance(value, Reason) else f"{value.status}-{len(value.body)}",
)
def test_unusable_response_is_rejected(provider: Provider, response: Response, expected: Reason) -> None:
    provider.responses[DISCOVERY] = response
    assert fetch_reason(provider) == expected
    assert provider.paths() == [DISCOVERY]


def test_provider_that_hangs_is_given_up(provider: Provider) -> None:
    provider.responses[DISCOVERY] = Response(hangs=True)
    with override_settings(FEDERATION_TIMEOUT_SECONDS=1):
        assert fetch_reason(provider) == Reason.TIMED_OUT


def test_provider_that_is_down_is_an_error(provider: Provider) -> None:
    provider.close()
    assert fetch_reason(provider) == Reason.CONNECTION_FAILED


def test_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UpstreamError) as caught:
        fetch_metadata("https://idp.invalid")
    assert (caught.value.reason, caught.value.received) == (Reason.NAME_NOT_RESOLVED, "idp.invalid")


@pytest.mark.parametrize(
    "address",
    [
        None,
        1,
        "",
        "/token",
        "ftp://idp.example/token",
        "javascript:alert(1)",
        "https://",
        "https://user:password@idp.example/token",
        "https://idp.example:99999/token",
        "https://idp.example/token#fragment",
        "https://idp.example/to ken",
        "https://idp.example;script-src/token",
        "https://*.example/token",
        "https://idp.example:/token",
        "https://3232235521/",
        "https://idp.example\\@127.0.0.1/",
        "https://idp.example/\r\nHost: x",
        "https://[::1/token",
        "https://idp.example/" + "x" * 2048,
    ],
)
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint"])
def test_malformed_endpoint_is_rejected(name: str, address: Any) -> None:
    issuer = "https://idp.example"
    endpoints = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    document = {"issuer": issuer, **{each: f"{issuer}/{each}" for each in endpoints}, name: address}
    with pytest.raises(UpstreamError) as caught:
        read_metadata(document, issuer)
    assert caught.value.reason == Reason.METADATA_INVALID


def test_plain_http_is_rejected_unless_the_settings_allow_it(provider: Provider) -> None:
    with override_settings(FEDERATION_PLAIN_HTTP=False):
        assert fetch_reason(provider) == Reason.ADDRESS_NOT_ALLOWED
    assert provider.requests == []


# --- endpoints in private networks (CWE-918) -------------------------------------------------------------------------


def test_provider_in_a_private_network_is_not_called(provider: Provider) -> None:
    with override_settings(FEDERATION_ALLOWED_NETWORKS=[]):
        assert fetch_reason(provider) == Reason.ADDRESS_NOT_ALLOWED
    assert provider.requests == []


@pytest.fixture
def internal() -> Any:
    internal = Provider("127.0.0.2")
    yield internal
    internal.close()


@pytest.mark.parametrize("name", ["token_endpoint", "jwks_uri", "userinfo_endpoint"])
def test_endpoint_in_a_private_network_is_rejected_at_use(provider: Provider, internal: Provider, name: str) -> None:
    provider.metadata = {name: f"{internal.issuer}/secret"}
    changes = {"token_endpoint": f"{internal.issuer}/secret"} if name == "token_endpoint" else {}
    error = failure(provider, client_of(provider, reads_userinfo=True, **changes))
    assert (error.reason, error.received) == (Reason.ADDRESS_NOT_ALLOWED, "127.0.0.2")
    assert internal.requests == []


@pytest.mark.parametrize("address", ["https://169.254.169.254/latest", "https://10.0.0.1/jwks", "https://[::1]/jwks"])
def test_metadata_address_is_rejected_at_use(provider: Provider, address: str) -> None:
    provider.metadata = {"jwks_uri": address}
    assert reason(provider) == Reason.ADDRESS_NOT_ALLOWED


def test_address_is_checked_at_every_use(provider: Provider) -> None:
    client = client_of(provider)
    sign_in(provider, client)
    with override_settings(FEDERATION_ALLOWED_NETWORKS=[]):
        assert reason(provider, client) == Reason.ADDRESS_NOT_ALLOWED


# --- cache -----------------------------------------------------------------------------------------------------------


def test_metadata_are_fetched_once_an_hour(provider: Provider) -> None:
    client = client_of(provider)
    for _ in range(3):
        metadata_of(client)
    assert provider.paths() == [DISCOVERY]
    let_time_pass(discovery._cache, FRESH_SECONDS)
    metadata_of(client)
    assert provider.paths() == [DISCOVERY] * 2


def test_metadata_are_fetched_for_each_connection(provider: Provider) -> None:
    for _ in range(2):
        metadata_of(client_of(provider))
    assert provider.paths() == [DISCOVERY] * 2


def test_failure_is_remembered_for_seconds(provider: Provider) -> None:
    provider.responses[DISCOVERY] = Response(500)
    client = client_of(provider)
    for _ in range(3):
        assert reason(provider, client) == Reason.STATUS_UNEXPECTED
    assert provider.paths() == [DISCOVERY]
    del provider.responses[DISCOVERY]
    let_time_pass(discovery._cache, FAILED_SECONDS)
    assert metadata_of(client).issuer == provider.issuer


def test_provider_is_trusted_by_the_authorities_of_its_tenant_only(provider: Provider, tmp_path: Path) -> None:
    authority = new_authority()
    with_tls(provider.server, authority, tmp_path)
    provider.scheme = "https"
    assert fetch_metadata(provider.issuer, authorities=authority.pem).issuer == provider.issuer
    assert fetch_reason(provider) == Reason.TLS_FAILED
