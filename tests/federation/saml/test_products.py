"""Responses of products are accepted: which part is signed, how it is written, which algorithms."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from federation.saml.responses import decode_form_value, unverified_request_id
from tests.federation.saml.identity_provider import (
    NOW,
    REQUEST,
    SUBJECT,
    Claims,
    Style,
    assertion_text,
    new_curve_signer,
    read,
    respond,
)
from tests.federation.saml.products import entra, google, keycloak, keycloak_encrypted, okta

MORE = "http://www.w3.org/2001/04/xmldsig-more#"
XMLENC = "http://www.w3.org/2001/04/xmlenc#"


@pytest.mark.parametrize(
    "product", [okta, entra, keycloak, keycloak_encrypted, google], ids=lambda product: product.__name__
)
def test_response_of_product_is_accepted(product: Callable[[], bytes]) -> None:
    assert read(product()).subject == SUBJECT


@pytest.mark.parametrize("signed", ["assertion", "response", "both"])
def test_each_signed_part_is_enough(signed: str) -> None:
    assert read(respond(signed=signed)).subject == SUBJECT


@pytest.mark.parametrize("size", [256, 384, 512])
def test_rsa_signatures_are_accepted(size: int) -> None:
    digest = f"{MORE}sha384" if size == 384 else f"{XMLENC}sha{size}"
    style = Style(method=f"{MORE}rsa-sha{size}", digest=digest)
    assert read(respond(signed="both", style=style)).subject == SUBJECT


@pytest.mark.parametrize("size", [256, 384])
def test_ecdsa_signatures_are_accepted(size: int) -> None:
    signer = new_curve_signer(ec.SECP256R1() if size == 256 else ec.SECP384R1())
    style = Style(method=f"{MORE}ecdsa-sha{size}")
    assert read(respond(signer=signer, style=style), signer).subject == SUBJECT


def test_indented_response_is_accepted() -> None:
    claims = Claims()
    assertion = assertion_text(claims).replace("><saml:", ">\n    <saml:")
    assert read(respond(claims, assertion=f"\n  {assertion}\n")).subject == SUBJECT


def test_identity_has_what_the_assertion_says() -> None:
    identity = read(respond())
    assert identity.attributes == {"email": (SUBJECT,), "Role": ("admin", "staff")}
    assert identity.name_id_format == "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
    assert identity.authn_context == "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
    assert identity.authenticated_at == NOW - timedelta(minutes=1)
    assert identity.session_not_on_or_after == NOW + timedelta(hours=8)
    assert identity.assertion_id == "_a1"
    assert identity.valid_until == NOW + timedelta(minutes=6)


def test_attributes_of_okta_and_google_are_read() -> None:
    assert read(okta()).attributes == {"email": (SUBJECT,)}
    assert read(google()).attributes == {"department": ()}


def test_subject_is_read_exactly_as_signed() -> None:
    assert read(respond(Claims(subject=" Alice &amp; Bob "))).subject == " Alice & Bob "


def test_one_time_use_is_accepted() -> None:
    assert read(respond(Claims(more_conditions="<saml:OneTimeUse/>"))).subject == SUBJECT


def test_form_field_with_line_breaks_is_decoded() -> None:
    assert decode_form_value("PGE+\r\nPC9h\r\nPg==") == b"<a></a>"


def test_request_id_is_read_before_verification() -> None:
    assert unverified_request_id(respond(signed="none")) == REQUEST
