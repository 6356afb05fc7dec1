"""Certificates of identity providers: rollover, expiry, and which ones are usable."""

from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from federation.saml.certificates import CertificateRejected, expires_at, fingerprint, read_certificate
from federation.saml.rejections import Reason
from tests.federation.saml.identity_provider import (
    NOW,
    SUBJECT,
    Signer,
    Style,
    foreign_signer,
    new_curve_signer,
    new_signer,
    read,
    respond,
    rsa_signer,
)
from tests.federation.saml.rejected import reason

ECDSA = Style(method="http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256")


def pem_of(signer: Signer) -> str:
    return signer.certificate.public_bytes(Encoding.PEM).decode()


def test_twenty_certificates_are_rolled_over() -> None:
    """Each new certificate is accepted beside the two before it, and none of those that were removed."""
    signers = [new_curve_signer() for _ in range(20)]
    for number, signer in enumerate(signers):
        trusted = signers[max(number - 2, 0) : number + 1]
        assert read(respond(signer=signer, style=ECDSA), *trusted).subject == SUBJECT
        assert read(respond(signer=trusted[0], style=ECDSA), *trusted).subject == SUBJECT
        for removed in signers[: max(number - 2, 0)]:
            assert reason(respond(signer=removed, style=ECDSA), *trusted) is Reason.CERTIFICATE_UNKNOWN


def test_certificate_that_is_not_yet_trusted_is_rejected() -> None:
    assert reason(respond(signer=foreign_signer()), rsa_signer()) is Reason.CERTIFICATE_UNKNOWN
    assert read(respond(signer=foreign_signer()), rsa_signer(), foreign_signer()).subject == SUBJECT


def test_keys_of_both_kinds_are_trusted_together() -> None:
    curve = new_curve_signer()
    assert read(respond(), curve, rsa_signer()).subject == SUBJECT
    assert read(respond(signer=curve, style=ECDSA), curve, rsa_signer()).subject == SUBJECT


def test_certificate_that_is_not_yet_valid_verifies() -> None:
    early = new_signer(rsa_signer().key, not_after=NOW + timedelta(days=20_000))
    assert read(respond(signer=early), early).subject == SUBJECT


def test_expired_certificate_still_verifies() -> None:
    expired = new_signer(rsa_signer().key, not_after=NOW - timedelta(days=400))
    assert read(respond(signer=expired), expired).subject == SUBJECT
    assert expires_at(expired.certificate) == NOW - timedelta(days=400)


def test_renewed_certificate_of_the_same_key_is_the_same_trust() -> None:
    """The connection has the old certificate, and the response names the new one."""
    renewed = new_signer(rsa_signer().key, not_after=NOW + timedelta(days=900))
    assert fingerprint(renewed.certificate) != fingerprint(rsa_signer().certificate)
    assert read(respond(signer=renewed), rsa_signer()).subject == SUBJECT
    assert read(respond(signer=renewed), rsa_signer(), renewed).subject == SUBJECT


def test_more_than_three_certificates_are_an_error() -> None:
    with pytest.raises(ValueError, match="at most 3 certificates"):
        read(respond(), *[rsa_signer()] * 4)


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1()])
def test_certificate_is_read_as_pem_and_as_base64(curve: ec.EllipticCurve) -> None:
    signer = new_curve_signer(curve)
    assert read_certificate(pem_of(signer)) == signer.certificate
    assert read_certificate(f"\n {signer.base64[:60]}\r\n {signer.base64[60:]} ") == signer.certificate


def test_short_rsa_key_is_rejected() -> None:
    weak = new_signer(rsa.generate_private_key(65537, 1024))
    with pytest.raises(CertificateRejected, match="2048 to 8192 bits"):
        read_certificate(pem_of(weak))


@pytest.mark.parametrize("curve", [ec.SECP256K1(), ec.SECP521R1()])
def test_other_curves_are_rejected(curve: ec.EllipticCurve) -> None:
    """Signatures with P-521 use SHA-512, which is not among the algorithms."""
    with pytest.raises(CertificateRejected, match="curves P-256 and P-384"):
        read_certificate(pem_of(new_curve_signer(curve)))


def test_dsa_key_is_rejected() -> None:
    signer = new_signer(dsa.generate_private_key(1024))  # type: ignore[arg-type]
    with pytest.raises(CertificateRejected, match="neither RSA"):
        read_certificate(pem_of(signer))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        "not base64",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
        "A" * 20_000,
        "ＡＡＡＡ",
        "\0",
    ],
)
def test_text_that_is_no_certificate_is_rejected(text: str) -> None:
    with pytest.raises(CertificateRejected):
        read_certificate(text)


def test_damaged_certificates_raise_nothing_else() -> None:
    text = rsa_signer().base64
    rejected = 0
    for position, character in enumerate(text):
        try:
            read_certificate(f"{text[:position]}{'A' if character != 'A' else 'B'}{text[position + 1 :]}")
        except CertificateRejected:
            rejected += 1
    assert rejected > 100


def test_private_key_is_no_certificate() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    with pytest.raises(CertificateRejected):
        read_certificate(pem)
