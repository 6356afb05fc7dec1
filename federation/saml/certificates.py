"""Certificates of identity providers: containers of keys that the tenant's admin trusts, not statements of an authority.

Neither the issuer of a certificate nor its time is checked: most are self-signed, and an expired one still has the key
that signs. The owner of the connection is warned before (`expires_at`).
"""

import binascii
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from federation.saml.documents import DocumentRejected, decoded

SHORTEST_RSA_KEY: Final = 2048
LONGEST_RSA_KEY: Final = 8192
LONGEST_CERTIFICATE: Final = 16 * 1024
_CURVES: Final = (ec.SECP256R1, ec.SECP384R1)  # those of ECDSA-SHA256 and ECDSA-SHA384
_PEM: Final = re.compile(r"\s*-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----\s*")


class CertificateRejected(Exception):
    """The certificate cannot verify signatures here. The text says why."""


def read_certificate(text: str) -> x509.Certificate:
    """Return the certificate of a PEM block or, as metadata has it, of bare base64.

    Raises CertificateRejected if it cannot be read, or if its key is not RSA of 2,048 to 8,192 bits or on P-256 or P-384.
    """
    if len(text) > LONGEST_CERTIFICATE:
        raise CertificateRejected(f"The certificate is longer than {LONGEST_CERTIFICATE} characters.")
    block = _PEM.fullmatch(text)
    try:
        certificate = x509.load_der_x509_certificate(decoded(block[1] if block else text))
        key = certificate.public_key()
        # The library reads fields when they are asked for.
        ends_first = certificate.not_valid_after_utc < certificate.not_valid_before_utc
    except (DocumentRejected, ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as problem:
        raise CertificateRejected("This is not an X.509 certificate in PEM or base64.") from problem
    if ends_first:
        raise CertificateRejected("The certificate ends before it begins.")
    if isinstance(key, rsa.RSAPublicKey):
        if not SHORTEST_RSA_KEY <= key.key_size <= LONGEST_RSA_KEY:
            raise CertificateRejected(f"RSA keys have {SHORTEST_RSA_KEY} to {LONGEST_RSA_KEY} bits.")
    elif not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES)):
        raise CertificateRejected("The key is neither RSA nor on one of the curves P-256 and P-384.")
    return certificate


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint in hexadecimal, as the consoles of identity providers show it without colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def public_key_bytes(certificate: x509.Certificate) -> bytes:
    """Return the public key in DER. Two certificates with one key are one trust: renewals often keep the key."""
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def distinct_keys(certificates: Iterable[x509.Certificate]) -> list[x509.Certificate]:
    """Return the certificates without those whose key an earlier one has."""
    by_key: dict[bytes, x509.Certificate] = {}
    for certificate in certificates:
        by_key.setdefault(public_key_bytes(certificate), certificate)
    return list(by_key.values())


def expires_at(certificate: x509.Certificate) -> datetime:
    """Return the time after which the certificate is expired. It still verifies then."""
    return certificate.not_valid_after_utc


def base64_of(certificate: x509.Certificate) -> str:
    """Return the certificate as metadata and signatures contain it: DER in base64 without line breaks."""
    return binascii.b2a_base64(certificate.public_bytes(Encoding.DER), newline=False).decode()
