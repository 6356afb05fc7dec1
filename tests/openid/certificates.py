"""Certificates of clients, and callers that present them as the proxy that ends TLS does."""

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.userflow.clients.keys import public_jwk

HEADER = "X-Client-Cert"
SUBJECT = "CN=client,O=Example,C=DE"
DAY = timedelta(days=1)


def new_private_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Certified:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> str:
        """The certificate in base64."""
        return base64.b64encode(self.certificate.public_bytes(Encoding.DER)).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def thumbprint(self) -> str:
        """The member `x5t#S256` of bound tokens (RFC 8705 section 3.1)."""
        return base64.urlsafe_b64encode(self.certificate.fingerprint(hashes.SHA256())).rstrip(b"=").decode()

    @property
    def headers(self) -> dict[str, str]:
        """What nginx passes on (`$ssl_client_escaped_cert`)."""
        return {HEADER: quote(self.pem, safe="/+= ")}

    @property
    def jwk(self) -> dict[str, Any]:
        """The key with its certificate, as a client registers it for self_signed_tls_client_auth."""
        return public_jwk(self.key, kid=self.thumbprint, x5c=[self.der])


def _builder(
    subject: str, issuer: x509.Name | None, key: ec.EllipticCurvePrivateKey, since: timedelta, until: timedelta
) -> x509.CertificateBuilder:
    name, moment = x509.Name.from_rfc4514_string(subject), datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(issuer or name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(moment + since).not_valid_after(moment + until)


@dataclass
class Authority:
    """An authority that issues certificates of clients."""

    name: str = "CN=Authority,O=Example"
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_private_key)

    def __post_init__(self) -> None:
        usage = dict.fromkeys(
            (
                "digital_signature",
                "content_commitment",
                "key_encipherment",
                "data_encipherment",
                "key_agreement",
                "encipher_only",
                "decipher_only",
            ),
            False,
        )
        builder = _builder(self.name, None, self.key, -DAY, 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        self.certificate = builder.add_extension(identifier, critical=False).sign(self.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self,
        subject: str = SUBJECT,
        *names: x509.GeneralName,
        since: timedelta = -DAY,
        until: timedelta = 30 * DAY,
        usage: x509.ObjectIdentifier | None = ExtendedKeyUsageOID.CLIENT_AUTH,
    ) -> Certified:
        """Return a certificate of this subject, with these alternative names."""
        key = new_private_key()
        builder = _builder(subject, self.certificate.subject, key, since, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return Certified(builder.sign(self.key, hashes.SHA256()), key)


def self_signed(subject: str = SUBJECT, *, since: timedelta = -DAY, until: timedelta = 30 * DAY) -> Certified:
    """Return a certificate that its own key has signed."""
    key = new_private_key()
    return Certified(_builder(subject, None, key, since, until).sign(key, hashes.SHA256()), key)
