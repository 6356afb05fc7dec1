"""Clients that authenticate with a certificate (RFC 8705 section 2): of an authority, or one that they have registered."""

import hmac
import ipaddress
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError
from django.utils.timezone import now

from userflow.sessions.client_signatures import SignatureInvalid, keys_of_client
from userflow.sessions.sender_constraint import thumbprint_of

TLS, SELF_SIGNED_TLS = "tls_client_auth", "self_signed_tls_client_auth"
TLS_METHODS: Final = (TLS, SELF_SIGNED_TLS)
# Of the subject that a client registers (RFC 8705 section 2.1.2); it has one of them.
SUBJECT_DN: Final = "tls_client_auth_subject_dn"
SUBJECT_FIELDS: Final = (
    SUBJECT_DN,
    "tls_client_auth_san_dns",
    "tls_client_auth_san_uri",
    "tls_client_auth_san_ip",
    "tls_client_auth_san_email",
)
AUTHORITIES: Final = "tls_client_auth_authorities"
MOST_AUTHORITIES: Final = 10
# Names in distinguished names beside those of RFC 4514 section 3; others are sent as numbers (`2.5.4.5=…`).
_NAMES: Final = {
    "emailAddress": NameOID.EMAIL_ADDRESS,
    "serialNumber": NameOID.SERIAL_NUMBER,
    "organizationIdentifier": NameOID.ORGANIZATION_IDENTIFIER,
    "businessCategory": NameOID.BUSINESS_CATEGORY,
}


class SubjectInvalid(ValueError):
    """What a client has registered names no certificate; the text says why."""


def distinguished_name(text: str) -> x509.Name:
    """Return the name that a text of RFC 4514 stands for. Raises SubjectInvalid."""
    try:
        return x509.Name.from_rfc4514_string(text, _NAMES)
    except (ValueError, KeyError, IndexError) as problem:
        raise SubjectInvalid("Send a distinguished name such as CN=client,O=Example,C=DE (RFC 4514).") from problem


@lru_cache(maxsize=256)
def authorities_of(pem: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates of authorities in PEM. Raises SubjectInvalid."""
    try:
        certificates = tuple(x509.load_pem_x509_certificates(pem.encode("ascii")))
        basics = [each.extensions.get_extension_for_class(x509.BasicConstraints).value for each in certificates]
    except (ValueError, x509.ExtensionNotFound) as problem:
        raise SubjectInvalid("Send certificates of authorities in PEM.") from problem
    if len(certificates) > MOST_AUTHORITIES or not all(basic.ca for basic in basics):
        raise SubjectInvalid(f"Send up to {MOST_AUTHORITIES} certificates of authorities (basic constraints: CA).")
    return certificates


def is_of_authority(certificate: x509.Certificate, registered: Mapping[str, str]) -> bool:
    """Return whether an authority of the client has issued the certificate to the subject that the client has registered.

    `registered` has the fields of the client with a value (RFC 8705 section 2.1).
    """
    subjects = [(name, registered[name]) for name in SUBJECT_FIELDS if registered.get(name)]
    try:
        authorities = authorities_of(registered.get(AUTHORITIES, ""))
        if len(subjects) != 1 or not _has_subject(certificate, *subjects[0]):
            return False
        return _is_issued(certificate, authorities)
    except ValueError:  # SubjectInvalid, and extensions that cannot be read
        return False


def is_registered(
    certificate: x509.Certificate, *, client_id: UUID, jwks: dict[str, object], jwks_uri: str, authorities: str
) -> bool:
    """Return whether the certificate is in a key of the client (`x5c`, RFC 8705 section 2.2). Raises ClientKeysBusy."""
    presented = certificate.public_bytes(Encoding.DER)
    # With a name that no key has, keys at an address are fetched again, once a minute at most: the certificate may be new.
    for kid in (None, thumbprint_of(certificate)):
        try:
            keys = keys_of_client(client_id, jwks, jwks_uri, kid, authorities)
        except SignatureInvalid:
            return False
        if any(key.certificate is not None and hmac.compare_digest(key.certificate, presented) for key in keys):
            return True
    return False


def _has_subject(certificate: x509.Certificate, name: str, value: str) -> bool:
    if name == SUBJECT_DN:
        return certificate.subject == distinguished_name(value)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return _ALTERNATIVES[name](names, value)


_ALTERNATIVES: Final[Mapping[str, Callable[[x509.SubjectAlternativeName, str], bool]]] = {
    "tls_client_auth_san_dns": lambda names, value: (
        value.lower() in (dns.lower() for dns in names.get_values_for_type(x509.DNSName))
    ),
    "tls_client_auth_san_uri": lambda names, value: value in names.get_values_for_type(x509.UniformResourceIdentifier),
    "tls_client_auth_san_ip": lambda names, value: (
        ipaddress.ip_address(value) in names.get_values_for_type(x509.IPAddress)
    ),
    "tls_client_auth_san_email": lambda names, value: value in names.get_values_for_type(x509.RFC822Name),
}


def _check_usage(policy: Policy, certificate: x509.Certificate, usage: x509.ExtendedKeyUsage | None) -> None:
    if usage is not None and ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
        raise ValueError("The certificate is not for clients.")


# Certificates of clients often have no alternative name, which those of servers must have.
_OF_CLIENTS: Final = ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, Criticality.AGNOSTIC, _check_usage
)


def _is_issued(certificate: x509.Certificate, authorities: tuple[x509.Certificate, ...]) -> bool:
    """Return whether one of the authorities has issued the certificate, itself or by another of them, and it is valid now."""
    if certificate in authorities:
        return False
    policy = PolicyBuilder().store(Store(list(authorities))).time(now())
    verifier = policy.extension_policies(
        ca_policy=ExtensionPolicy.webpki_defaults_ca(), ee_policy=_OF_CLIENTS
    ).build_client_verifier()
    try:
        verifier.verify(certificate, [])
    except VerificationError:
        return False
    return True
