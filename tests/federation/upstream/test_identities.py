"""Rules of providers: what identifies a user, and whose word about an address counts."""

import json
from typing import Any
from uuid import uuid4

import pytest

from federation.upstream.clients import ClientSecret, Rules, UpstreamClient
from federation.upstream.errors import Reason, UpstreamError
from federation.upstream.identities import UpstreamIdentity, apple_name, identity_of_claims

DIRECTORY, USER = "72f988bf-86f1-41af-91ab-2d7cd011db47", "00000000-0000-0000-66f3-3332eca7ea81"
OTHER_DIRECTORY = "9188040d-6c67-4c5b-b112-36a304b66dad"
ISSUER, OTHER_ISSUER = (f"https://login.microsoftonline.com/{each}/v2.0" for each in (DIRECTORY, OTHER_DIRECTORY))
MICROSOFT = {"iss": ISSUER, "sub": "pairwise", "tid": DIRECTORY, "oid": USER, "email": "jane@customer.example"}


def client_with(rules: Rules, **changes: Any) -> UpstreamClient:
    return UpstreamClient(
        connection_id=uuid4(),
        issuer="https://idp.example",
        client_id="client",
        credential=ClientSecret("secret"),
        token_endpoint="https://idp.example/token",
        rules=rules,
        **changes,
    )


def identity(rules: Rules, claims: dict[str, Any], **changes: Any) -> UpstreamIdentity:
    return identity_of_claims(client_with(rules, **changes), {"sub": "subject", **claims})


def trusts(rules: Rules, **claims: Any) -> bool:
    """Return whether the address of a user counts as verified."""
    return identity(rules, {"email": "jane@customer.example", **claims}).address_trusted


def rejection(rules: Rules, claims: dict[str, Any], **changes: Any) -> Reason:
    with pytest.raises(UpstreamError) as caught:
        identity(rules, claims, **changes)
    return caught.value.reason


# --- subjects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [Rules.GENERIC, Rules.GOOGLE, Rules.APPLE])
@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("", Reason.SUBJECT_EMPTY),
        (None, Reason.SUBJECT_EMPTY),
        ("  ", Reason.SUBJECT_EMPTY),
        (0, Reason.SUBJECT_INVALID),
        (7, Reason.SUBJECT_INVALID),
        (False, Reason.SUBJECT_INVALID),
        (["a"], Reason.SUBJECT_INVALID),
        ("a\0", Reason.SUBJECT_INVALID),
    ],
)
def test_subject_that_is_no_text_is_rejected(rules: Rules, subject: Any, expected: Reason) -> None:
    assert rejection(rules, {"sub": subject}) == expected


def test_address_and_name_are_no_subject() -> None:
    claims = {"sub": None, "email": "jane@customer.example", "upn": "jane", "preferred_username": "jane"}
    assert rejection(Rules.GENERIC, claims) == Reason.SUBJECT_EMPTY


def test_microsoft_subject_is_directory_and_user() -> None:
    assert identity(Rules.MICROSOFT, MICROSOFT).subject == f"{DIRECTORY}:{USER}"
    upper = {**MICROSOFT, "tid": DIRECTORY.upper(), "oid": USER.upper()}
    assert identity(Rules.MICROSOFT, upper).subject == f"{DIRECTORY}:{USER}"


@pytest.mark.parametrize("name", ["tid", "oid"])
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Reason.SUBJECT_EMPTY),
        ("", Reason.SUBJECT_EMPTY),
        (1, Reason.SUBJECT_INVALID),
        ([DIRECTORY], Reason.SUBJECT_INVALID),
        ("not-a-guid", Reason.SUBJECT_INVALID),
        (f"{DIRECTORY}\n", Reason.SUBJECT_INVALID),
    ],
)
def test_microsoft_subject_without_directory_or_user_is_rejected(name: str, value: Any, expected: Reason) -> None:
    assert rejection(Rules.MICROSOFT, {**MICROSOFT, name: value}) == expected


def test_microsoft_directory_of_another_issuer_is_rejected() -> None:
    assert rejection(Rules.MICROSOFT, {**MICROSOFT, "tid": OTHER_DIRECTORY}) == Reason.ISSUER_MISMATCH
    assert rejection(Rules.MICROSOFT, {**MICROSOFT, "iss": None}) == Reason.ISSUER_MISMATCH


def test_user_of_another_directory_is_another_user() -> None:
    other = {**MICROSOFT, "iss": OTHER_ISSUER, "tid": OTHER_DIRECTORY}
    assert identity(Rules.MICROSOFT, other).subject != identity(Rules.MICROSOFT, MICROSOFT).subject


# --- organizations ---------------------------------------------------------------------------------------------------


def test_google_user_of_another_organization_is_rejected() -> None:
    allowed = {"organizations": frozenset({"Customer.example"})}
    assert identity(Rules.GOOGLE, {"hd": "customer.example"}, **allowed).subject == "subject"
    for hosted_domain in ("attacker.example", None, ["customer.example"], "", "sub.customer.example"):
        claims = {"hd": hosted_domain, "email": "jane@customer.example", "email_verified": True}
        assert rejection(Rules.GOOGLE, claims, **allowed) == Reason.ORGANIZATION_NOT_ALLOWED


def test_microsoft_user_of_another_directory_is_rejected() -> None:
    allowed = {"organizations": frozenset({DIRECTORY})}
    assert identity(Rules.MICROSOFT, MICROSOFT, **allowed).subject
    other = {**MICROSOFT, "iss": OTHER_ISSUER, "tid": OTHER_DIRECTORY}
    assert rejection(Rules.MICROSOFT, other, **allowed) == Reason.ORGANIZATION_NOT_ALLOWED


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [Rules.GENERIC, Rules.APPLE])
def test_address_is_trusted_if_it_is_verified(rules: Rules) -> None:
    assert trusts(rules, email_verified=True)
    assert trusts(rules, email_verified="true")
    for value in (False, None, "false", "True", "TRUE", "1", 1, [], ["true"], {}, ""):
        assert not trusts(rules, email_verified=value), value
    assert not trusts(rules)


def test_google_address_is_trusted_if_google_hosts_it() -> None:
    assert trusts(Rules.GOOGLE, email="jane@gmail.com", email_verified=True)
    assert trusts(Rules.GOOGLE, email="jane@GMAIL.com", email_verified=True)
    assert trusts(Rules.GOOGLE, email_verified=True, hd="customer.example")
    assert not trusts(Rules.GOOGLE, email_verified=True)
    assert not trusts(Rules.GOOGLE, email_verified=True, hd="attacker.example")
    assert not trusts(Rules.GOOGLE, email_verified=True, hd=True)
    assert not trusts(Rules.GOOGLE, email_verified=True, hd=["customer.example"])
    assert not trusts(Rules.GOOGLE, email="jane@gmail.com", email_verified=False)
    assert not trusts(Rules.GOOGLE, email="jane@notgmail.com", email_verified=True)
    assert not trusts(Rules.GOOGLE, email="jane@gmail.com.attacker.example", email_verified=True)


def test_microsoft_address_is_trusted_with_xms_edov_only() -> None:
    directory = {"iss": ISSUER, "tid": DIRECTORY, "oid": USER}
    assert trusts(Rules.MICROSOFT, **directory, xms_edov=True)
    assert not trusts(Rules.MICROSOFT, **directory, email_verified=True)
    for value in (False, None, "true", "1", 1, [True]):
        assert not trusts(Rules.MICROSOFT, **directory, xms_edov=value, email_verified=True), value


def test_only_the_claim_email_is_an_address() -> None:
    claims = {"upn": "victim@customer.example", "preferred_username": "victim@customer.example", "xms_edov": True}
    user = identity(Rules.MICROSOFT, {"iss": ISSUER, "tid": DIRECTORY, "oid": USER, **claims})
    assert (user.address, user.address_trusted) == ("", False)


@pytest.mark.parametrize(
    "address",
    [None, "", 1, ["jane@customer.example"], "jane", "jane@localhost", "ja\u0131ne@customer.example", "a@b\0.c"],
)
def test_invalid_address_is_none(address: Any) -> None:
    user = identity(Rules.GENERIC, {"email": address, "email_verified": True})
    assert (user.address, user.address_trusted) == ("", False)


# --- other values ----------------------------------------------------------------------------------------------------


def test_claims_about_the_token_are_not_mapped() -> None:
    user = identity(Rules.GENERIC, {"iss": "https://idp.example", "nonce": "n", "groups": ["a"], "address": {"a": "b"}})
    assert user.claims == {"sub": "subject", "groups": ["a"], "address": {"a": "b"}}


def deep() -> Any:
    nested: Any = []
    for _ in range(400):
        nested = [nested]
    return nested


@pytest.mark.parametrize("value", ["a\0b", ["a\0"], {"a\0": 1}, "\ud800", "x" * 20_000, deep()])
def test_claim_that_cannot_be_stored_is_dropped(value: Any) -> None:
    assert identity(Rules.GENERIC, {"department": value, "sid": "s"}).claims == {"sub": "subject"}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"name": " Jane Doe "}, "Jane Doe"),
        ({"given_name": "Jane", "family_name": "Doe"}, "Jane Doe"),
        ({"given_name": "Jane"}, "Jane"),
        ({"name": 1, "given_name": ["x"]}, ""),
        ({"name": "https://attacker.example"}, ""),
        ({"name": "a\u202eb"}, ""),
        ({"name": "a\0"}, ""),
        ({"name": "x" * 201}, ""),
        ({}, ""),
    ],
)
def test_name_is_text_that_can_be_shown(claims: dict[str, Any], expected: str) -> None:
    assert identity(Rules.GENERIC, claims).name == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["pwd", "mfa"], ("pwd", "mfa")),
        ("mfa", ("mfa",)),
        (["pwd", 1, None, ""], ("pwd",)),
        ({"a": 1}, ()),
        (None, ()),
        (1, ()),
    ],
)
def test_methods_are_a_list_of_names(value: Any, expected: tuple[str, ...]) -> None:
    assert identity(Rules.GENERIC, {"amr": value}).amr == expected


@pytest.mark.parametrize("value", ["1700000000", True, None, -1, float("nan"), []])
def test_time_of_authentication_is_a_number(value: Any) -> None:
    assert identity(Rules.GENERIC, {"auth_time": value}).auth_time is None


# --- Apple -----------------------------------------------------------------------------------------------------------


def test_apple_name_comes_with_the_form() -> None:
    form = json.dumps({"name": {"firstName": "Jane", "lastName": "Doe"}, "email": "victim@customer.example"})
    claims = {"sub": "001", "email": "x@privaterelay.appleid.com", "email_verified": "true"}
    user = identity_of_claims(client_with(Rules.APPLE), claims, user_form=form)
    assert (user.name, user.address, user.address_trusted) == ("Jane Doe", "x@privaterelay.appleid.com", True)


def test_form_of_other_providers_is_ignored() -> None:
    form = json.dumps({"name": {"firstName": "Jane", "lastName": "Doe"}})
    assert identity_of_claims(client_with(Rules.GENERIC), {"sub": "001"}, user_form=form).name == ""


@pytest.mark.parametrize(
    "form",
    ["", "{", "[]", "null", '{"name": "Jane"}', '{"name": {"firstName": 1}}', "[" * 5000, "x" * 20_000, "\ud800"],
)
def test_malformed_apple_form_names_no_user(form: str) -> None:
    assert apple_name(form) == ""
