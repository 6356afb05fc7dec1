"""Identity providers of others, unchanged, with our metadata, requests and rules."""

import base64
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

import pytest
from lxml import etree

from federation.saml.metadata import read_metadata
from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.requests import AuthnRequest, create_authn_request, service_provider_metadata
from federation.saml.responses import SKEW, Identity, SamlConnection, read_response, unverified_request_id
from tests.federation.saml.foreign_providers import (
    FOLDER,
    Provider,
    ProviderError,
    ReadRequest,
    Samlify,
    User,
    run_saml_idp,
    run_samlify,
)
from tests.federation.saml.identity_provider import (
    ACS,
    AES256_CBC,
    AES256_GCM,
    NOW,
    SAML,
    SP,
    SUBJECT,
    Signer,
    foreign_signer,
    new_signer,
    platform_key,
    rsa_signer,
)
from tests.openid.node_client import install_packages

pytestmark = pytest.mark.needs("node")

OTHER: Final = "https://other.example/sso"
REFEDS: Final = "https://refeds.org/profile/mfa"
PASSWORD: Final = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
LIFETIME: Final = timedelta(minutes=5)
USER: Final = User(SUBJECT, "zoë+o'neil&co@customer.example", ("<Staff>", "Engineering"))

RUNNERS: Final[dict[str, Callable[[Signer], AbstractContextManager[Provider]]]] = {
    "samlify": run_samlify,
    "saml-idp": run_saml_idp,
}
every_provider = pytest.mark.parametrize("provider", RUNNERS, indirect=True)
samlify_only = pytest.mark.parametrize("provider", ["samlify"], indirect=True)


@pytest.fixture(scope="module")
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    install_packages(FOLDER)
    with RUNNERS[request.param](rsa_signer()) as running:
        yield running


@cache
def our_signer() -> Signer:
    """Our key, also for encryption. The providers sign with `rsa_signer`."""
    return new_signer(platform_key())


def our_metadata(*, service_provider: str = SP, acs_url: str = ACS) -> bytes:
    certificates = [our_signer().certificate]
    return service_provider_metadata(
        service_provider=service_provider,
        acs_url=acs_url,
        signing_certificates=certificates,
        encryption_certificates=certificates,
    )


def our_request(provider: Provider, *, signer: Signer | None = None, **options: Any) -> AuthnRequest:
    signer = signer or our_signer()
    return create_authn_request(
        service_provider=SP,
        acs_url=ACS,
        destination=provider.location,
        key=signer.key,
        certificate=signer.certificate,
        now=NOW,
        **options,
    )


def our_connection(provider: Provider) -> SamlConnection:
    """The connection that the metadata of the provider sets up."""
    described = read_metadata(provider.metadata(rsa_signer()), now=NOW)
    return SamlConnection(
        identity_provider=described.entity_id,
        service_provider=SP,
        acs_url=ACS,
        certificates=described.certificates,
        decryption_keys=(platform_key(),),
    )


def response_to(request: AuthnRequest, provider: Provider, **options: Any) -> bytes:
    options = {"service_provider": our_metadata(), "signer": rsa_signer(), **options}
    return provider.respond(request, USER, **options)


def issued_at(response: bytes) -> datetime:
    """The time of the provider's clock, so that none of ours matters."""
    return datetime.fromisoformat(etree.fromstring(response).get("IssueInstant"))


def read(response: bytes, request: AuthnRequest, connection: SamlConnection, *, age: timedelta) -> Identity:
    return read_response(response, connection=connection, request_id=request.id, now=issued_at(response) + age)


def rejection(
    response: bytes, request: AuthnRequest, connection: SamlConnection, *, age: timedelta = timedelta(0)
) -> tuple[Reason, str]:
    """Return the reason, and what the log says was received."""
    with pytest.raises(AssertionRejected) as caught:
        read(response, request, connection, age=age)
    return caught.value.reason, caught.value.received


# --- metadata and requests -------------------------------------------------------------------------------------------------


@every_provider
def test_metadata_of_provider_is_read(provider: Provider) -> None:
    described = read_metadata(provider.metadata(rsa_signer()), now=NOW)
    assert (described.entity_id, described.post_location) == (provider.entity_id, provider.location)
    assert described.certificates == (rsa_signer().certificate,)
    assert described.wants_signed_requests == isinstance(provider, Samlify)
    assert described.valid_until is None


@every_provider
def test_provider_verifies_our_request(provider: Provider) -> None:
    request = our_request(provider)
    read_request = provider.read_request(request.form_value(), service_provider=our_metadata())
    assert read_request == ReadRequest(request.id, SP, ACS, provider.location)


@every_provider
def test_provider_reads_request_with_every_option(provider: Provider) -> None:
    """`samlify` also validates requests with the schemas of SAML."""
    request = our_request(provider, force_authn=True, authn_contexts=[REFEDS, PASSWORD])
    assert provider.read_request(request.form_value(), service_provider=our_metadata()).id == request.id


@every_provider
def test_provider_rejects_changed_request(provider: Provider) -> None:
    changed = base64.b64encode(our_request(provider).document.replace(ACS.encode(), b"https://other.example/acs"))
    with pytest.raises(ProviderError, match=r"FAILED_TO_VERIFY_SIGNATURE|invalid signature"):
        provider.read_request(changed.decode(), service_provider=our_metadata())


@every_provider
def test_provider_rejects_request_of_other_key(provider: Provider) -> None:
    request = our_request(provider, signer=foreign_signer())
    with pytest.raises(ProviderError, match=r"ERROR_UNMATCH_CERTIFICATE|invalid signature"):
        provider.read_request(request.form_value(), service_provider=our_metadata())


# --- responses ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "signed", "encryption"),
    [
        ("samlify", "assertion", ""),
        ("samlify", "both", ""),
        ("samlify", "assertion", AES256_GCM),
        ("samlify", "both", AES256_GCM),
        ("samlify", "both", AES256_CBC),
        ("saml-idp", "response", ""),
        ("saml-idp", "assertion", ""),
        ("saml-idp", "both", ""),
        ("saml-idp", "response", AES256_GCM),
        ("saml-idp", "assertion", AES256_GCM),
        ("saml-idp", "both", AES256_GCM),
        ("saml-idp", "response", AES256_CBC),
        ("saml-idp", "both", AES256_CBC),
    ],
    indirect=["provider"],
)
def test_response_is_accepted(provider: Provider, signed: str, encryption: str) -> None:
    request = our_request(provider)
    response = response_to(request, provider, signed=signed, encryption=encryption)
    assert (b"EncryptedAssertion" in response) == bool(encryption)
    assert (SUBJECT.encode() in response) == (not encryption)
    assert unverified_request_id(response) == request.id
    identity = read(response, request, our_connection(provider), age=timedelta(0))
    assert identity.subject == SUBJECT
    assert identity.name_id_format == "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
    assert identity.authn_context == PASSWORD
    assert (identity.attributes["email"], identity.attributes["groups"]) == ((USER.email,), USER.groups)
    assert timedelta(0) <= issued_at(response) - identity.authenticated_at < LIFETIME


@every_provider
def test_response_is_accepted_until_its_end(provider: Provider) -> None:
    request, connection = our_request(provider), our_connection(provider)
    response = response_to(request, provider)
    (conditions,) = etree.fromstring(response).iter(f"{{{SAML}}}Conditions")
    end = datetime.fromisoformat(conditions.get("NotOnOrAfter")) + SKEW
    remaining = end - issued_at(response)
    identity = read(response, request, connection, age=remaining - timedelta(milliseconds=1))
    assert (identity.subject, identity.valid_until) == (SUBJECT, end)
    assert rejection(response, request, connection, age=remaining)[0] is Reason.CLOCK_SKEW


# --- rejected responses --------------------------------------------------------------------------------------------------


@every_provider
def test_response_for_other_acs_is_rejected(provider: Provider) -> None:
    request = our_request(provider)
    elsewhere = response_to(request, provider, service_provider=our_metadata(acs_url=f"{OTHER}/acs"))
    assert rejection(elsewhere, request, our_connection(provider)) == (Reason.DESTINATION_MISMATCH, f"{OTHER}/acs")
    # Without a signature of the Response, its Destination can be changed.
    changed = elsewhere.replace(f'Destination="{OTHER}/acs"'.encode(), f'Destination="{ACS}"'.encode())
    assert rejection(changed, request, our_connection(provider)) == (Reason.RECIPIENT_MISMATCH, f"{OTHER}/acs")


@every_provider
def test_response_for_other_audience_is_rejected(provider: Provider) -> None:
    request = our_request(provider)
    response = response_to(request, provider, service_provider=our_metadata(service_provider=OTHER))
    assert rejection(response, request, our_connection(provider)) == (Reason.AUDIENCE_MISMATCH, OTHER)


@every_provider
def test_response_of_other_certificate_is_rejected(provider: Provider) -> None:
    request, connection = our_request(provider), our_connection(provider)
    response = response_to(request, provider, signer=foreign_signer())
    assert rejection(response, request, connection)[0] is Reason.CERTIFICATE_UNKNOWN
    trusted = replace(connection, certificates=(*connection.certificates, foreign_signer().certificate))
    assert read(response, request, trusted, age=timedelta(0)).subject == SUBJECT


@every_provider
def test_response_to_older_request_is_rejected(provider: Provider) -> None:
    older = our_request(provider)
    response = response_to(older, provider)
    assert rejection(response, our_request(provider), our_connection(provider)) == (Reason.REQUEST_MISMATCH, older.id)


@every_provider
def test_changed_subject_is_rejected(provider: Provider) -> None:
    request = our_request(provider)
    response = response_to(request, provider, signed="both").replace(SUBJECT.encode(), b"mallory@customer.example")
    assert rejection(response, request, our_connection(provider)) == (Reason.SIGNATURE_INVALID, "digest")


# --- where we are stricter than a provider ------------------------------------------------------------------------------


@every_provider
def test_cbc_without_signed_response_is_rejected(provider: Provider) -> None:
    """The standard has AES-CBC, but its ciphertext can be changed, and results of a decryption then tell the plaintext."""
    request = our_request(provider)
    response = response_to(request, provider, encryption=AES256_CBC)
    assert rejection(response, request, our_connection(provider)) == (Reason.ENCRYPTION_NOT_ALLOWED, AES256_CBC)


@samlify_only
def test_response_without_authentication_is_rejected(provider: Provider) -> None:
    """The library's own template has no AuthnStatement, which Profiles section 4.1.4.2 demands."""
    request = our_request(provider)
    response = response_to(request, provider, ownTemplate=True)
    assert rejection(response, request, our_connection(provider)) == (Reason.AUTHENTICATION_MISSING, "0 elements")


@samlify_only
def test_response_encrypted_after_signature_is_rejected(provider: Provider) -> None:
    """The library can sign the Response and encrypt the assertion in it afterwards.

    A service provider would have to decrypt first (Core section 6.2: in reverse order) for every sender and verify
    a document that it did not receive. The library has an option for the other order.
    """
    request = our_request(provider)
    response = response_to(request, provider, signed="both", encryption=AES256_GCM, encryptThenSign=False)
    assert rejection(response, request, our_connection(provider)) == (Reason.SIGNATURE_INVALID, "digest")
