"""Attacks on signatures: what is signed, how it is canonicalized, with which algorithm and whose key."""

import base64
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.responses import Identity
from federation.saml.signatures import verify_assertion, verify_response
from tests.federation.saml.identity_provider import (
    DS,
    ENVELOPED,
    EXCLUSIVE,
    INCLUSIVE,
    SUBJECT,
    Claims,
    Style,
    assertion_text,
    foreign_signer,
    new_curve_signer,
    read,
    respond,
    response_text,
    rsa_signer,
    sign,
    signature_text,
    signed_assertion,
    signed_info_text,
)
from tests.federation.saml.rejected import problem, reason, rejection

ATTACKER = "admin@customer.example"
MORE = "http://www.w3.org/2001/04/xmldsig-more#"


def signed_response() -> str:
    return respond().decode()


def between(text: str, opening: str, closing: str) -> str:
    """The first element with these tags."""
    start = text.index(opening)
    return text[start : text.index(closing, start) + len(closing)]


# --- no or another signature -------------------------------------------------------------------------------------------


def test_unsigned_response_is_rejected() -> None:
    assert reason(respond(signed="none")) is Reason.SIGNATURE_MISSING


@pytest.mark.parametrize("signed", ["assertion", "response", "both"])
def test_changed_subject_is_rejected(signed: str) -> None:
    document = respond(signed=signed).replace(SUBJECT.encode(), ATTACKER.encode())
    assert problem(document) == (Reason.SIGNATURE_INVALID, "digest")


def test_second_signature_must_verify_too() -> None:
    """A valid signature of the Response does not excuse an invalid one of the Assertion, nor the other way round."""
    claims = Claims()
    text = response_text(claims, assertion_text(claims))
    forged_inside = sign(text, "assertion", "_a1", foreign_signer(), Style())
    forged_inside = sign(forged_inside, "response", "_r1", rsa_signer(), Style())
    forged_outside = sign(text, "assertion", "_a1", rsa_signer(), Style())
    forged_outside = sign(forged_outside, "response", "_r1", foreign_signer(), Style())
    assert reason(forged_inside.encode()) is Reason.CERTIFICATE_UNKNOWN
    assert reason(forged_outside.encode()) is Reason.CERTIFICATE_UNKNOWN


def test_values_are_not_read_from_the_unsigned_document() -> None:
    """The Response is not signed, so nothing outside the assertion reaches the identity."""
    statement = (
        f'<saml:AttributeStatement xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"><saml:Attribute Name="Role">'
        "<saml:AttributeValue>root</saml:AttributeValue></saml:Attribute></saml:AttributeStatement>"
        f"<saml:Subject><saml:NameID>{ATTACKER}</saml:NameID></saml:Subject>"
    )
    identity = read(signed_response().replace("</samlp:Response>", f"{statement}</samlp:Response>").encode())
    assert identity.subject == SUBJECT
    assert identity.attributes["Role"] == ("admin", "staff")


def test_only_a_response_is_verified_as_one() -> None:
    with pytest.raises(AssertionRejected) as caught:
        verify_response(signed_assertion(), [rsa_signer().certificate])
    assert caught.value.received == "The root is another element than Response."
    with pytest.raises(AssertionRejected) as caught:
        verify_assertion(respond(), [rsa_signer().certificate], response_signed=False)
    assert caught.value.received == "The root is another element than Assertion."


def test_signature_of_another_element_is_rejected() -> None:
    """The signature of an assertion, moved to the Response."""
    text = signed_response()
    signature = between(text, "<ds:Signature ", "</ds:Signature>")
    moved = text.replace(signature, "").replace("<samlp:Status>", f"{signature}<samlp:Status>")
    assert problem(moved.encode()) == (Reason.MALFORMED, "A Reference is not to the parent of its Signature.")


def test_signature_below_another_element_is_rejected() -> None:
    text = signed_response()
    signature = between(text, "<ds:Signature ", "</ds:Signature>")
    moved = text.replace(signature, "").replace("<saml:Subject>", f"<saml:Subject>{signature}")
    assert problem(moved.encode())[1] == "A Signature is not a child of the Response or the Assertion."


def test_two_signatures_of_one_element_are_rejected() -> None:
    signature = between(signed_response(), "<ds:Signature ", "</ds:Signature>")
    doubled = signed_response().replace(signature, signature + signature)
    assert problem(doubled.encode()) == (Reason.MALFORMED, "An element has two signatures.")


# --- whose key -----------------------------------------------------------------------------------------------------------


def test_key_from_key_info_is_not_used() -> None:
    error = rejection(respond(signer=foreign_signer()))
    assert error.reason is Reason.CERTIFICATE_UNKNOWN
    assert error.expected == rsa_signer().certificate.fingerprint(SHA256()).hex()
    assert error.received == foreign_signer().certificate.fingerprint(SHA256()).hex()


def test_key_value_is_not_used() -> None:
    key = foreign_signer().certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    modulus = base64.b64encode(key.public_numbers().n.to_bytes(256, "big")).decode()
    key_info = (
        f"<ds:KeyInfo><ds:KeyValue><ds:RSAKeyValue><ds:Modulus>{modulus}</ds:Modulus><ds:Exponent>AQAB</ds:Exponent>"
        "</ds:RSAKeyValue></ds:KeyValue></ds:KeyInfo>"
    )
    document = respond(signer=foreign_signer(), style=Style(key_info=key_info))
    assert problem(document) == (Reason.SIGNATURE_INVALID, "no readable certificate")


def test_certificate_of_the_customer_proves_nothing() -> None:
    """KeyInfo has the right certificate, and the signature is by another key."""
    certificate = f"<ds:X509Certificate>{rsa_signer().base64}</ds:X509Certificate>"
    key_info = f"<ds:KeyInfo><ds:X509Data>{certificate}</ds:X509Data></ds:KeyInfo>"
    assert reason(respond(signer=foreign_signer(), style=Style(key_info=key_info))) is Reason.SIGNATURE_INVALID


def test_key_info_is_ignored_if_it_makes_no_sense() -> None:
    assert read(respond(style=Style(key_info="<ds:KeyInfo><ds:KeyName>x</ds:KeyName></ds:KeyInfo>"))).subject == SUBJECT
    assert read(respond(style=Style(key_info="<ds:KeyInfo><ds:X509Data/></ds:KeyInfo>"))).subject == SUBJECT
    assert read(respond(style=Style(key_info=""))).subject == SUBJECT


def test_public_key_as_hmac_secret_is_rejected() -> None:
    public_key = rsa_signer().certificate.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for secret in (public_key, rsa_signer().certificate.public_bytes(Encoding.PEM)):
        style = Style(method=f"{MORE}hmac-sha256", hmac_key=secret)
        assert problem(respond(style=style)) == (Reason.ALGORITHM_NOT_ALLOWED, f"SignatureMethod: {style.method}")


def test_algorithm_for_another_kind_of_key_is_rejected() -> None:
    signer = new_curve_signer()
    assert reason(respond(signer=signer, style=Style(method=f"{MORE}ecdsa-sha256"))) is Reason.CERTIFICATE_UNKNOWN
    text = respond().decode().replace("rsa-sha256", "ecdsa-sha256")
    assert reason(text.encode()) is Reason.SIGNATURE_INVALID


# --- algorithms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", [f"{DS}rsa-sha1", f"{MORE}rsa-sha224", "http://www.w3.org/2007/05/xmldsig-more#sha256-rsa-MGF1"]
)
def test_signature_method_outside_the_list_is_rejected(method: str) -> None:
    text = signed_response().replace(f"{MORE}rsa-sha256", method)
    assert problem(text.encode()) == (Reason.ALGORITHM_NOT_ALLOWED, f"SignatureMethod: {method}")


def test_sha1_signature_is_rejected() -> None:
    style = Style(method=f"{DS}rsa-sha1")
    assert reason(respond(style=style)) is Reason.ALGORITHM_NOT_ALLOWED


def test_sha1_digest_is_rejected() -> None:
    style = Style(digest=f"{DS}sha1")
    assert problem(respond(style=style)) == (Reason.ALGORITHM_NOT_ALLOWED, f"DigestMethod: {DS}sha1")


def test_parameters_of_algorithms_are_rejected() -> None:
    """HMACOutputLength once cut signatures to one bit (CVE-2009-0217)."""
    text = re.sub(
        r"(<ds:SignatureMethod [^>]*)/>",
        r"\1><ds:HMACOutputLength>1</ds:HMACOutputLength></ds:SignatureMethod>",
        signed_response(),
    )
    assert problem(text.encode()) == (Reason.MALFORMED, "An algorithm of a Signature has parameters.")


# --- canonicalization ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri", [INCLUSIVE, f"{EXCLUSIVE}WithComments", "http://www.w3.org/2006/12/xml-c14n11", "urn:none"]
)
def test_canonicalization_of_signed_info_is_exclusive(uri: str) -> None:
    style = Style(canonicalization=uri)
    assert problem(respond(style=style)) == (Reason.ALGORITHM_NOT_ALLOWED, f"CanonicalizationMethod: {uri}")


@pytest.mark.parametrize(
    "transforms",
    [
        (ENVELOPED, INCLUSIVE),
        (ENVELOPED, f"{EXCLUSIVE}WithComments"),
        (EXCLUSIVE, ENVELOPED),
        (ENVELOPED, f"{DS}base64"),
        (ENVELOPED, "http://www.w3.org/TR/1999/REC-xslt-19991116"),
        (ENVELOPED, "http://www.w3.org/TR/1999/REC-xpath-19991116"),
        ("urn:unknown", EXCLUSIVE),
    ],
)
def test_other_transforms_are_rejected(transforms: tuple[str, str]) -> None:
    assert reason(respond(style=Style(transforms=transforms))) is Reason.ALGORITHM_NOT_ALLOWED


@pytest.mark.parametrize("transforms", [(), (EXCLUSIVE,), (ENVELOPED,), (ENVELOPED, EXCLUSIVE, EXCLUSIVE)])
def test_other_numbers_of_transforms_are_rejected(transforms: tuple[str, ...]) -> None:
    assert problem(respond(style=Style(transforms=transforms))) == (
        Reason.MALFORMED,
        "A Reference does not have two Transforms.",
    )


@pytest.mark.parametrize(
    "prefixes", ["xs  saml", " xs", "xs ", " ", "xs\tsaml", "\nxs\r\n saml ", "xs&#9;saml", "&#10;xs"]
)
@pytest.mark.parametrize("signed", ["assertion", "response"])
def test_prefix_list_with_more_spaces_is_accepted(prefixes: str, signed: str) -> None:
    """The spaces are no empty prefixes, which lxml takes for the default namespace after an `xmlns=""`."""
    declared = 'xmlns="urn:default" xmlns:xs="http://www.w3.org/2001/XMLSchema"'
    text = assertion_text(Claims(more='<x xmlns=""/>')).replace("<saml:Assertion ", f"<saml:Assertion {declared} ")
    assert read(respond(assertion=text, signed=signed, style=Style(prefix_list=prefixes))).subject == SUBJECT


@pytest.mark.parametrize("prefixes", ["#default", "xs #default"])
def test_default_namespace_in_prefix_list_is_rejected(prefixes: str) -> None:
    """The canonicalization of lxml ignores it, so the digest would be another one."""
    error = rejection(respond(style=Style(prefix_list=prefixes)))
    assert (error.reason, error.received) == (Reason.ALGORITHM_NOT_ALLOWED, f"InclusiveNamespaces: {prefixes}")


@pytest.mark.parametrize("prefixes", ["é", "a" * 65, "xs " * 33, "xs,saml", "xs\u00a0saml"])
def test_prefix_list_of_another_form_is_rejected(prefixes: str) -> None:
    text = respond(style=Style(prefix_list="xs")).decode().replace('PrefixList="xs"', f'PrefixList="{prefixes}"')
    assert problem(text.encode()) == (Reason.MALFORMED, "An algorithm of a Signature has parameters.")


@pytest.mark.parametrize("namespace", ["1", "../up", "relative/path", "//host/path", "?query"])
def test_void_canonicalization_is_rejected(namespace: str) -> None:
    """A relative namespace makes libxml2's canonicalization fail, and an empty result has a known digest."""
    text = signed_response().replace("<saml:Subject>", f'<saml:Subject xmlns:void="{namespace}">')
    assert problem(text.encode()) == (Reason.MALFORMED, "A namespace is not an absolute URI.")


def test_digest_of_nothing_is_rejected() -> None:
    """The signature of an empty canonical form, which an identity provider was led to sign."""
    style = Style()
    signed_info = signed_info_text(
        bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"), "#_a1", style
    )
    text = response_text(Claims(), assertion_text(Claims())).replace("@response@", "")
    text = text.replace("@assertion@", signature_text(signed_info, rsa_signer(), style))
    assert problem(text.encode()) == (Reason.SIGNATURE_INVALID, "digest")


# --- references and SignedInfo ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference", ["", "#", "_a1", "#_r1", "#xpointer(id('_a1'))", "#xpointer(/)", "https://attacker.example/x", "##_a1"]
)
def test_reference_to_another_target_is_rejected(reference: str) -> None:
    style = Style(reference=reference)
    assert problem(respond(style=style)) == (Reason.MALFORMED, "A Reference is not to the parent of its Signature.")


def test_second_reference_is_rejected() -> None:
    text = signed_response()
    reference = between(text, "<ds:Reference ", "</ds:Reference>")
    assert problem(respond(style=Style(more_references=reference))) == (
        Reason.MALFORMED,
        "SignedInfo does not have exactly one Reference.",
    )


def test_other_element_in_reference_is_rejected() -> None:
    text = signed_response().replace("</ds:Reference>", "<ds:DigestValue>AAAA</ds:DigestValue></ds:Reference>")
    assert problem(text.encode()) == (
        Reason.MALFORMED,
        "A Reference has other elements than Transforms, DigestMethod and DigestValue.",
    )


def test_second_signed_info_is_rejected() -> None:
    """The first SignedInfo has the attacker's digest, the second is signed (CVE-2025-29774)."""
    text = signed_response().replace(SUBJECT, ATTACKER)
    signed_info = between(text, "<ds:SignedInfo>", "</ds:SignedInfo>")
    forged = re.sub("<ds:DigestValue>[^<]*", "<ds:DigestValue>AAAA", signed_info)
    for both in (forged + signed_info, signed_info + forged):
        received = problem(text.replace(signed_info, both).encode())
        assert received == (
            Reason.MALFORMED,
            "A Signature has other elements than SignedInfo, SignatureValue and KeyInfo.",
        )


def test_comment_in_digest_value_is_rejected() -> None:
    """One reader takes the text before the comment, another one the text behind it (CVE-2025-29775)."""
    text = signed_response().replace("<ds:DigestValue>", "<ds:DigestValue><!--AAAA-->")
    assert problem(text.encode()) == (Reason.MALFORMED, "The document has a comment.")


def test_element_in_digest_value_is_rejected() -> None:
    text = signed_response().replace("</ds:DigestValue>", "<x>AAAA</x></ds:DigestValue>")
    assert problem(text.encode()) == (Reason.MALFORMED, "A value of a Signature is empty or has elements.")


@pytest.mark.parametrize("value", ["", "  ", "!!!!", "AAA", "ＡＡＡＡ"])
def test_signature_value_that_is_not_base64_is_rejected(value: str) -> None:
    text = re.sub("<ds:SignatureValue>[^<]*", f"<ds:SignatureValue>{value}", signed_response())
    assert reason(text.encode()) is Reason.MALFORMED


def test_object_in_signature_is_rejected() -> None:
    text = signed_response().replace("</ds:Signature>", "<ds:Object>x</ds:Object></ds:Signature>")
    assert problem(text.encode())[1] == "A Signature has other elements than SignedInfo, SignatureValue and KeyInfo."


def outcome(document: bytes) -> Identity | Reason:
    try:
        return read(document)
    except AssertionRejected as error:
        return error.reason


def test_any_changed_byte_changes_no_identity() -> None:
    """Whichever byte of a response changes, the identity stays, or the response is rejected with a reason."""
    document, identity = respond(signed="both"), read(respond(signed="both"))
    outcomes = [
        outcome(document[:position] + bytes([document[position] ^ 1]) + document[position + 1 :])
        for position in range(0, len(document), 97)
    ]
    accepted = [each for each in outcomes if isinstance(each, Identity)]
    assert all(each == identity for each in accepted)
    # Those in the KeyInfo of the Response, which no signature covers.
    assert 0 < len(accepted) < len(outcomes) / 2
