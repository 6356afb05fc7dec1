"""What a connection sends to its identity provider: signed requests, and the metadata that describes us to it."""

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from federation.saml.certificates import base64_of
from federation.saml.documents import ASSERTION, METADATA, PROTOCOL, SIGNATURE, Element, write
from federation.saml.encryption import GCM_KEYS, OAEP_MGF1P
from federation.saml.signatures import SigningKey, sign
from federation.saml.times import write_time

POST_BINDING: Final = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"
PROTOCOL_NAME: Final = PROTOCOL[1:-1]
_ID_BYTES: Final = 20  # Core section 1.3.4: 128 to 160 bits


@dataclass(frozen=True, slots=True)
class AuthnRequest:
    """A request for authentication. The response names its `id`, which the caller stores with the attempt."""

    id: str
    document: bytes

    def form_value(self) -> str:
        """Return the form field SAMLRequest of the POST binding (Bindings section 3.5.4)."""
        return base64.b64encode(self.document).decode()


def create_authn_request(
    *,
    service_provider: str,
    acs_url: str,
    destination: str,
    key: SigningKey,
    certificate: x509.Certificate,
    now: datetime,
    force_authn: bool = False,
    authn_contexts: Sequence[str] = (),
) -> AuthnRequest:
    """Return a signed request for authentication (Core section 3.4.1) to the location `destination`.

    The identity provider chooses the format of the subject. `authn_contexts` are classes of which one is demanded. Raises
    ValueError for text that XML cannot express.
    """
    request_id = f"_{secrets.token_hex(_ID_BYTES)}"
    attributes = {
        "ID": request_id,
        "Version": "2.0",
        "IssueInstant": write_time(now),
        "Destination": destination,
        "ProtocolBinding": POST_BINDING,
        "AssertionConsumerServiceURL": acs_url,
    }
    if force_authn:
        attributes["ForceAuthn"] = "true"
    children = [
        Element(f"{ASSERTION}Issuer", text=service_provider),
        Element(f"{PROTOCOL}NameIDPolicy", {"AllowCreate": "true"}),
    ]
    if authn_contexts:
        classes = tuple(Element(f"{ASSERTION}AuthnContextClassRef", text=name) for name in authn_contexts)
        children.append(Element(f"{PROTOCOL}RequestedAuthnContext", {"Comparison": "exact"}, children=classes))
    request = Element(f"{PROTOCOL}AuthnRequest", attributes, children=tuple(children))
    return AuthnRequest(request_id, sign(request, key=key, certificate=certificate))


def service_provider_metadata(
    *,
    service_provider: str,
    acs_url: str,
    signing_certificates: Sequence[x509.Certificate],
    encryption_certificates: Sequence[x509.Certificate] = (),
) -> bytes:
    """Return our metadata for one connection (Metadata section 2.4.4): keys and the one address that takes responses.

    Certificates for encryption have RSA keys. Raises ValueError for text that XML cannot express, and for other keys.
    """
    if not all(isinstance(certificate.public_key(), rsa.RSAPublicKey) for certificate in encryption_certificates):
        raise ValueError("Certificates for encryption have RSA keys.")
    methods = tuple(
        Element(f"{METADATA}EncryptionMethod", {"Algorithm": algorithm}) for algorithm in (*GCM_KEYS, OAEP_MGF1P)
    )
    acs = {"Binding": POST_BINDING, "Location": acs_url, "index": "0", "isDefault": "true"}
    role = Element(
        f"{METADATA}SPSSODescriptor",
        {"AuthnRequestsSigned": "true", "WantAssertionsSigned": "true", "protocolSupportEnumeration": PROTOCOL_NAME},
        children=(
            *(_key_descriptor("signing", certificate) for certificate in signing_certificates),
            *(_key_descriptor("encryption", certificate, methods) for certificate in encryption_certificates),
            Element(f"{METADATA}AssertionConsumerService", acs),
        ),
    )
    return write(Element(f"{METADATA}EntityDescriptor", {"entityID": service_provider}, children=(role,)))


def _key_descriptor(use: str, certificate: x509.Certificate, methods: tuple[Element, ...] = ()) -> Element:
    encoded = Element(f"{SIGNATURE}X509Certificate", text=base64_of(certificate))
    key_info = Element(f"{SIGNATURE}KeyInfo", children=(Element(f"{SIGNATURE}X509Data", children=(encoded,)),))
    return Element(f"{METADATA}KeyDescriptor", {"use": use}, children=(key_info, *methods))
