"""Callbacks: what the browser brings is compared with the attempt (RFC 6749 section 4.1.2, RFC 9207)."""

import pytest

from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.sign_in import complete_sign_in
from tests.federation.upstream.provider import SUBJECT, Provider
from tests.federation.upstream.visits import Callback, begin, client_of, failure, pending_of, sign_in


def with_parameter(callback: Callback, name: str, value: str | None) -> Callback:
    """Return the callback with another value of a parameter, or without it."""
    return [pair for pair in callback if pair[0] != name] + ([] if value is None else [(name, value)])


@pytest.mark.parametrize("state", [None, "", "of-another-attempt", "\ud800"])
def test_state_of_another_attempt_is_rejected(provider: Provider, state: str | None) -> None:
    error = failure(provider, change=lambda callback: with_parameter(callback, "state", state))
    assert error.reason == Reason.STATE_MISMATCH
    assert "/token" not in provider.paths()


def test_empty_state_matches_no_callback(provider: Provider) -> None:
    client = client_of(provider)
    request = begin(client, state="")
    with pytest.raises(UpstreamError) as caught:
        complete_sign_in(client, pending_of(request, state=""), [("code", "code")])
    assert caught.value.reason == Reason.STATE_MISMATCH


def test_repeated_parameter_is_rejected(provider: Provider) -> None:
    for pair in (("code", "another"), ("state", "another"), ("iss", provider.issuer)):
        error = failure(provider, change=lambda callback, pair=pair: [*callback, pair, pair])
        assert error.reason == Reason.CALLBACK_INVALID
    assert "/token" not in provider.paths()


@pytest.mark.parametrize("code", [None, "", "c" * 8193])
def test_callback_without_code_is_rejected(provider: Provider, code: str | None) -> None:
    error = failure(provider, change=lambda callback: with_parameter(callback, "code", code))
    assert error.reason == Reason.CALLBACK_INVALID


def test_callback_may_name_the_issuer(provider: Provider) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    assert sign_in(provider).subject == SUBJECT


@pytest.mark.parametrize("supported", [True, False])
def test_callback_of_another_issuer_is_rejected(provider: Provider, supported: bool) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": supported}
    error = failure(provider, change=lambda callback: with_parameter(callback, "iss", "https://attacker.example"))
    assert (error.reason, error.received) == (Reason.CALLBACK_ISSUER_MISMATCH, "https://attacker.example")
    assert "/token" not in provider.paths()


def test_missing_issuer_is_rejected_if_the_provider_names_it(provider: Provider) -> None:
    provider.metadata = {"authorization_response_iss_parameter_supported": True}
    error = failure(provider, change=lambda callback: with_parameter(callback, "iss", None))
    assert error.reason == Reason.CALLBACK_ISSUER_MISMATCH


def errored(callback: Callback, code: str) -> Callback:
    return [*with_parameter(callback, "code", None), ("error", code), ("error_description", "a secret")]


@pytest.mark.parametrize(
    ("code", "expected", "received"),
    [
        ("access_denied", Reason.ACCESS_DENIED, "access_denied"),
        ("user_cancelled_authorize", Reason.ACCESS_DENIED, "user_cancelled_authorize"),
        ("login_required", Reason.PROVIDER_ERROR, "login_required"),
        ("<script>", Reason.PROVIDER_ERROR, "an invalid error code"),
        ("x" * 65, Reason.PROVIDER_ERROR, "an invalid error code"),
        ("", Reason.PROVIDER_ERROR, "an invalid error code"),
    ],
)
def test_error_of_the_provider_is_told(provider: Provider, code: str, expected: Reason, received: str) -> None:
    error = failure(provider, change=lambda callback: errored(callback, code))
    assert (error.reason, error.received) == (expected, received)
    assert "secret" not in f"{error} {error.expected}"


def test_error_of_another_issuer_is_rejected_as_such(provider: Provider) -> None:
    error = failure(
        provider, change=lambda callback: [*errored(callback, "access_denied"), ("iss", "https://attacker.example")]
    )
    assert error.reason == Reason.CALLBACK_ISSUER_MISMATCH


def test_error_beside_a_code_is_an_error(provider: Provider) -> None:
    error = failure(provider, change=lambda callback: [*callback, ("error", "server_error")])
    assert error.reason == Reason.PROVIDER_ERROR
