"""Encrypted assertions: algorithms, and that encryption does not authenticate."""

import base64
import os
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.responses import read_response
from tests.federation.saml.identity_provider import (
    AES256_CBC,
    AES256_GCM,
    DS,
    NOW,
    REQUEST,
    RSA15,
    SUBJECT,
    XENC,
    XENC11,
    Claims,
    connection,
    encrypted_text,
    foreign_signer,
    oaep,
    read,
    respond,
    signed_assertion,
    unsigned_assertion,
)
from tests.federation.saml.products import keycloak_encrypted
from tests.federation.saml.rejected import problem, reason, rejection

ATTACKER = Claims(subject="admin@customer.example")


def with_encrypted(text: str, *, signed: str = "none") -> bytes:
    return respond(assertion=text, signed=signed)


@pytest.mark.parametrize("size", [128, 192, 256])
def test_gcm_with_signed_assertion_is_accepted(size: int) -> None:
    text = encrypted_text(signed_assertion(), algorithm=f"{XENC11}aes{size}-gcm")
    assert read(with_encrypted(text)).subject == SUBJECT


def test_unsigned_assertion_in_signed_response_is_accepted() -> None:
    assert read(with_encrypted(encrypted_text(unsigned_assertion()), signed="response")).subject == SUBJECT


def test_both_signed_around_encryption_is_accepted() -> None:
    assert read(with_encrypted(encrypted_text(signed_assertion()), signed="response")).subject == SUBJECT


@pytest.mark.parametrize("size", [128, 192, 256])
def test_cbc_in_signed_response_is_accepted(size: int) -> None:
    text = encrypted_text(unsigned_assertion(), algorithm=f"{XENC}aes{size}-cbc")
    assert read(with_encrypted(text, signed="response")).subject == SUBJECT


def test_key_beside_the_data_is_accepted() -> None:
    assert read(with_encrypted(encrypted_text(signed_assertion(), beside=True))).subject == SUBJECT


def test_oaep_with_sha256_is_accepted() -> None:
    parameters = (
        f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="{XENC}sha256"/>'
        f'<xenc11:MGF xmlns:xenc11="{XENC11}" Algorithm="{XENC11}mgf1sha256"/>'
    )
    text = encrypted_text(
        signed_assertion(), transport=f"{XENC11}rsa-oaep", parameters=parameters, key_padding=oaep("sha256")
    )
    assert read(with_encrypted(text)).subject == SUBJECT


def test_oaep_with_sha256_digest_and_sha1_mask_is_accepted() -> None:
    parameters = f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="{XENC}sha256"/>'
    text = encrypted_text(signed_assertion(), parameters=parameters, key_padding=oaep("sha256", "sha1"))
    assert read(with_encrypted(text)).subject == SUBJECT


def test_earlier_key_still_decrypts() -> None:
    current = rsa.generate_private_key(65537, 2048)
    facts = replace(connection(), decryption_keys=(current, *connection().decryption_keys))
    document = with_encrypted(encrypted_text(signed_assertion()))
    assert read_response(document, connection=facts, request_id=REQUEST, now=NOW).subject == SUBJECT


# --- the context of the assertion -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", ["response", "assertion"])
def test_prefix_declared_by_the_response_is_accepted(signed: str) -> None:
    """Keycloak encrypts the assertion as it stands in the Response."""
    assert read(keycloak_encrypted(signed)).subject == SUBJECT


@pytest.mark.parametrize("namespace", ["urn:x&amp;y", "urn:x'y", "urn:x&amp;quot;"])
def test_every_namespace_around_encryption_is_accepted(namespace: str) -> None:
    document = with_encrypted(encrypted_text(signed_assertion()))
    declared = f'<samlp:Response xmlns:x="{namespace}" xmlns="{namespace}" '
    assert read(document.replace(b"<samlp:Response ", declared.encode(), 1)).subject == SUBJECT


def test_removed_default_namespace_around_encryption_is_accepted() -> None:
    document = with_encrypted(encrypted_text(signed_assertion()))
    document = document.replace(b"<samlp:Response ", b'<samlp:Response xmlns="urn:x" ', 1)
    document = document.replace(b"<saml:EncryptedAssertion>", b'<saml:EncryptedAssertion xmlns="">')
    assert read(document).subject == SUBJECT


def test_prefix_changed_around_signed_assertion_is_rejected() -> None:
    """The attacker gives another meaning to a prefix that the encrypted assertion does not declare."""
    assertion = signed_assertion(Claims(more='<x:y xmlns:x="urn:x"/>')).replace(b' xmlns:x="urn:x"', b"")
    document = with_encrypted(encrypted_text(assertion))
    honest = document.replace(b"<samlp:Response ", b'<samlp:Response xmlns:x="urn:x" ', 1)
    assert read(honest).subject == SUBJECT
    assert problem(honest.replace(b"urn:x", b"urn:evil", 1)) == (Reason.SIGNATURE_INVALID, "digest")


def test_prefix_outside_the_signature_of_the_response_is_not_used() -> None:
    """A declaration that no name uses is not part of the canonical form, so an attacker can add it."""
    assertion = unsigned_assertion(Claims(more="<x:y/>"))
    document = with_encrypted(encrypted_text(assertion), signed="response")
    document = document.replace(b"<samlp:Response ", b'<samlp:Response xmlns:x="urn:x" ', 1)
    assert reason(document) is Reason.DECRYPTION_FAILED


# --- encryption is not authentication --------------------------------------------------------------------------------------


def test_unsigned_assertion_inside_encryption_is_rejected() -> None:
    """Our encryption key is in our metadata: an attacker encrypts what the attacker likes."""
    document = with_encrypted(encrypted_text(unsigned_assertion(ATTACKER)))
    assert reason(document) is Reason.SIGNATURE_MISSING


def test_assertion_of_the_attacker_inside_encryption_is_rejected() -> None:
    document = with_encrypted(encrypted_text(signed_assertion(ATTACKER, signer=foreign_signer())))
    assert reason(document) is Reason.CERTIFICATE_UNKNOWN


def test_invalid_signature_inside_signed_response_is_rejected() -> None:
    forged = signed_assertion().replace(SUBJECT.encode(), b"admin@customer.example")
    document = with_encrypted(encrypted_text(forged), signed="response")
    assert problem(document) == (Reason.SIGNATURE_INVALID, "digest")


def test_replaced_ciphertext_in_signed_response_is_rejected() -> None:
    signed = with_encrypted(encrypted_text(unsigned_assertion()), signed="response").decode()
    other = encrypted_text(unsigned_assertion(ATTACKER))
    document = re.sub("<saml:EncryptedAssertion>.*</saml:EncryptedAssertion>", lambda _: other, signed, flags=re.DOTALL)
    assert problem(document.encode()) == (Reason.SIGNATURE_INVALID, "digest")


def test_encrypted_beside_plain_assertion_is_rejected() -> None:
    plain = signed_assertion().decode()
    document = with_encrypted(plain + encrypted_text(unsigned_assertion(ATTACKER)))
    assert problem(document) == (Reason.MALFORMED, "The document has 2 assertions.")


def test_second_assertion_inside_encryption_is_rejected() -> None:
    nested = signed_assertion().replace(b"</saml:Assertion>", unsigned_assertion(ATTACKER) + b"</saml:Assertion>")
    assert problem(with_encrypted(encrypted_text(nested))) == (Reason.MALFORMED, "The document has 2 assertions.")


# --- algorithms ------------------------------------------------------------------------------------------------------------


def test_cbc_without_signed_response_is_rejected() -> None:
    document = with_encrypted(encrypted_text(signed_assertion(), algorithm=AES256_CBC))
    assert problem(document) == (Reason.ENCRYPTION_NOT_ALLOWED, AES256_CBC)


def test_rsa_15_is_rejected() -> None:
    text = encrypted_text(unsigned_assertion(), transport=RSA15, key_padding=padding.PKCS1v15())
    assert problem(with_encrypted(text, signed="response")) == (Reason.ENCRYPTION_NOT_ALLOWED, RSA15)


@pytest.mark.parametrize("algorithm", [f"{XENC}tripledes-cbc", "", f"{XENC11}chacha20-poly1305"])
def test_other_ciphers_are_rejected(algorithm: str) -> None:
    text = encrypted_text(unsigned_assertion()).replace(AES256_GCM, algorithm)
    assert problem(with_encrypted(text, signed="response")) == (Reason.ENCRYPTION_NOT_ALLOWED, algorithm)


@pytest.mark.parametrize(
    "parameters",
    [
        f'<ds:DigestMethod xmlns:ds="{DS}" Algorithm="http://www.w3.org/2001/04/xmldsig-more#md5"/>',
        f'<xenc11:MGF xmlns:xenc11="{XENC11}" Algorithm="{XENC11}mgf1sha256"/>',
        "<xenc:OAEPparams>YQ==</xenc:OAEPparams>",
    ],
)
def test_other_parameters_of_oaep_are_rejected(parameters: str) -> None:
    text = encrypted_text(signed_assertion(), parameters=parameters)
    assert reason(with_encrypted(text)) is Reason.ENCRYPTION_NOT_ALLOWED


# --- one error -------------------------------------------------------------------------------------------------------------


def damaged(text: str, number: int, *, at_byte: int) -> str:
    """Flip a bit of a ciphertext: number 0 is that of the key, 1 that of the assertion."""
    value = re.findall("<xenc:CipherValue>([^<]*)", text)[number]
    raw = bytearray(base64.b64decode(value))
    raw[at_byte] ^= 1
    return text.replace(value, base64.b64encode(raw).decode())


def another_value(text: str, value: str) -> str:
    """Replace the ciphertext of the assertion."""
    return text.replace(re.findall("<xenc:CipherValue>([^<]*)", text)[1], value)


# Encrypted assertions that cannot be decrypted, each made of one that can.
FAILURES: dict[str, Callable[[str], str]] = {
    "key": lambda text: damaged(text, 0, at_byte=9),
    "assertion": lambda text: damaged(text, 1, at_byte=40),
    "tag": lambda text: damaged(text, 1, at_byte=-1),
    "nonce": lambda text: damaged(text, 1, at_byte=0),
    "foreign key": lambda _: encrypted_text(signed_assertion(), key=foreign_signer().certificate.public_key()),
    "size of the key": lambda _: encrypted_text(signed_assertion(), content_key=os.urandom(16)),
    "padding": lambda _: encrypted_text(signed_assertion(), key_padding=padding.PKCS1v15()),
    "no XML": lambda _: encrypted_text(b"not XML"),
    "another element": lambda _: encrypted_text(b"<a/>"),
    "document type": lambda _: encrypted_text(b"<!DOCTYPE a>" + signed_assertion()),
    "empty": lambda _: encrypted_text(b""),
    "two elements": lambda _: encrypted_text(signed_assertion() + b"<a/>"),
    "end of the context": lambda _: encrypted_text(b"</context><context>" + signed_assertion()),
    "declaration": lambda _: encrypted_text(b'<?xml version="1.0"?>' + signed_assertion()),
    "name": lambda _: encrypted_text(signed_assertion().replace(b"<saml:Subject>", '<saml:Subject é="">'.encode())),
    "short": lambda text: another_value(text, "AAAA"),
    "base64": lambda text: another_value(text, "!"),
    "no key": lambda text: re.sub("<ds:KeyInfo.*</ds:KeyInfo>", "", text, flags=re.DOTALL),
    "reference": lambda text: re.sub(
        "<xenc:CipherValue>[^<]*</xenc:CipherValue>", '<xenc:CipherReference URI="https://x.example/"/>', text
    ),
    "nothing": lambda _: "<saml:EncryptedAssertion/>",
}


@pytest.mark.parametrize("case", FAILURES)
def test_failed_decryption_has_one_error(case: str) -> None:
    error = rejection(with_encrypted(FAILURES[case](encrypted_text(signed_assertion()))))
    assert (error.reason, error.expected, error.received) == (Reason.DECRYPTION_FAILED, "", "")


@pytest.mark.parametrize("at_byte", [0, 20, -1])
def test_failed_cbc_has_the_same_error(at_byte: int) -> None:
    text = damaged(encrypted_text(unsigned_assertion(), algorithm=AES256_CBC), 1, at_byte=at_byte)
    error = rejection(with_encrypted(text, signed="response"))
    assert (error.reason, error.expected, error.received) == (Reason.DECRYPTION_FAILED, "", "")


def test_connection_without_key_decrypts_nothing() -> None:
    document = with_encrypted(encrypted_text(signed_assertion()))
    with pytest.raises(AssertionRejected) as caught:
        read_response(document, connection=replace(connection(), decryption_keys=()), request_id=REQUEST, now=NOW)
    assert caught.value.reason is Reason.DECRYPTION_FAILED
