"""A SAML identity provider for tests, in the shapes of real products, honest or not.

It shares no code with the platform and signs with lxml's canonicalization and `cryptography` instead of signxml, so every
part of a signature can be wrong.
"""

import base64
import hashlib
import hmac
import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from lxml import etree

from federation.saml.responses import Identity, SamlConnection, read_response

IDP = "https://idp.customer.example/metadata"
SP = "https://login.platform.example/t/acme/sso/customer"
ACS = f"{SP}/acs"
REQUEST = "_5f2b6f0d7a"
SUBJECT = "alice@customer.example"
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)

SAML = "urn:oasis:names:tc:SAML:2.0:assertion"
SAMLP = "urn:oasis:names:tc:SAML:2.0:protocol"
DS = "http://www.w3.org/2000/09/xmldsig#"
ENVELOPED = f"{DS}enveloped-signature"
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
INCLUSIVE = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SHA256 = "http://www.w3.org/2001/04/xmlenc#sha256"
BEARER = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
SUCCESS = "urn:oasis:names:tc:SAML:2.0:status:Success"

_HASHES: dict[str, Any] = {
    "sha1": hashes.SHA1,
    "sha256": hashes.SHA256,
    "sha384": hashes.SHA384,
    "sha512": hashes.SHA512,
}

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class Signer(NamedTuple):
    """A key with a self-signed certificate."""

    key: PrivateKey
    certificate: x509.Certificate

    @property
    def base64(self) -> str:
        return base64.b64encode(self.certificate.public_bytes(Encoding.DER)).decode()


def new_signer(key: PrivateKey, *, not_after: datetime = NOW + timedelta(days=365)) -> Signer:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "idp.customer.example")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_after - timedelta(days=730))
        .not_valid_after(not_after)
        .sign(key, hashes.SHA256())
    )
    return Signer(key, certificate)


def new_curve_signer(curve: ec.EllipticCurve | None = None) -> Signer:
    return new_signer(ec.generate_private_key(curve or ec.SECP256R1()))


@cache
def rsa_signer() -> Signer:
    """The key of the customer's identity provider."""
    return new_signer(rsa.generate_private_key(65537, 2048))


@cache
def foreign_signer() -> Signer:
    """The key of an attacker."""
    return new_signer(rsa.generate_private_key(65537, 2048))


@cache
def platform_key() -> rsa.RSAPrivateKey:
    """The key that identity providers encrypt for."""
    return rsa.generate_private_key(65537, 2048)


# --- what a response says --------------------------------------------------------------------------------------------


def at(**offset: float) -> str:
    return (NOW + timedelta(**offset)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


@dataclass(frozen=True)
class Claims:
    """What a response says; the defaults are those of an honest identity provider."""

    subject: str = SUBJECT
    name_id: str | None = None
    issuer: str = IDP
    response_issuer: str | None = None
    destination: str | None = ACS
    recipient: str = ACS
    audiences: str | None = None
    request_id: str | None = REQUEST
    confirmed_request_id: str | None = REQUEST
    status: str = f'<samlp:StatusCode Value="{SUCCESS}"/>'
    method: str = BEARER
    confirmed_until: str = at(minutes=5)
    confirmed_from: str | None = None
    not_before: str = at(minutes=-5)
    not_on_or_after: str = at(minutes=5)
    issued_at: str = at()
    conditions: str | None = None
    more_conditions: str = ""
    session_end: str | None = at(hours=8)
    statements: str | None = None
    more: str = ""
    assertion_id: str = "_a1"
    response_id: str = "_r1"
    version: str = "2.0"


ATTRIBUTES = (
    '<saml:AttributeStatement><saml:Attribute Name="email"><saml:AttributeValue '
    'xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
    f'xsi:type="xs:string">{SUBJECT}</saml:AttributeValue></saml:Attribute>'
    '<saml:Attribute Name="Role"><saml:AttributeValue>admin</saml:AttributeValue></saml:Attribute>'
    '<saml:Attribute Name="Role"><saml:AttributeValue>staff</saml:AttributeValue></saml:Attribute>'
    "</saml:AttributeStatement>"
)


def optional(name: str, value: str | None) -> str:
    return "" if value is None else f' {name}="{value}"'


def assertion_text(claims: Claims) -> str:
    """The assertion without its signature, which goes to `@assertion@`."""
    audiences = (
        f"<saml:AudienceRestriction><saml:Audience>{SP}</saml:Audience></saml:AudienceRestriction>"
        if claims.audiences is None
        else claims.audiences
    )
    conditions = (
        f'<saml:Conditions NotBefore="{claims.not_before}" NotOnOrAfter="{claims.not_on_or_after}">'
        f"{audiences}{claims.more_conditions}</saml:Conditions>"
        if claims.conditions is None
        else claims.conditions
    )
    statements = (
        f'<saml:AuthnStatement AuthnInstant="{at(minutes=-1)}" SessionIndex="_s1"'
        f"{optional('SessionNotOnOrAfter', claims.session_end)}><saml:AuthnContext><saml:AuthnContextClassRef>"
        "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport</saml:AuthnContextClassRef>"
        f"</saml:AuthnContext></saml:AuthnStatement>{ATTRIBUTES}"
        if claims.statements is None
        else claims.statements
    )
    name_id = (
        f'<saml:NameID Format="urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress">{claims.subject}</saml:NameID>'
        if claims.name_id is None
        else claims.name_id
    )
    return (
        f'<saml:Assertion xmlns:saml="{SAML}" ID="{claims.assertion_id}" IssueInstant="{claims.issued_at}" '
        f'Version="{claims.version}"><saml:Issuer>{claims.issuer}</saml:Issuer>@assertion@<saml:Subject>{name_id}'
        f'<saml:SubjectConfirmation Method="{claims.method}"><saml:SubjectConfirmationData'
        f"{optional('InResponseTo', claims.confirmed_request_id)}{optional('NotBefore', claims.confirmed_from)}"
        f' NotOnOrAfter="{claims.confirmed_until}" Recipient="{claims.recipient}"/></saml:SubjectConfirmation>'
        f"</saml:Subject>{conditions}{statements}{claims.more}</saml:Assertion>"
    )


def response_text(claims: Claims, assertion: str) -> str:
    """The Response around an assertion; its signature goes to `@response@`."""
    issuer = claims.issuer if claims.response_issuer is None else claims.response_issuer
    return (
        f'<samlp:Response xmlns:samlp="{SAMLP}" xmlns:saml="{SAML}" ID="{claims.response_id}" Version="2.0" '
        f'IssueInstant="{claims.issued_at}"{optional("Destination", claims.destination)}'
        f"{optional('InResponseTo', claims.request_id)}><saml:Issuer>{issuer}</saml:Issuer>@response@"
        f"<samlp:Status>{claims.status}</samlp:Status>{assertion}</samlp:Response>"
    )


# --- signatures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    """How a signature is written; the defaults are those of most products."""

    prefix: str = "ds"
    method: str = RSA_SHA256
    digest: str = SHA256
    canonicalization: str = EXCLUSIVE
    transforms: Sequence[str] = (ENVELOPED, EXCLUSIVE)
    prefix_list: str = ""
    reference: str | None = None
    key_info: str | None = None
    inner_space: str = ""
    more_references: str = ""
    hmac_key: bytes | None = None


def canonical(text: str, *, element_id: str | None = None, prefixes: str = "", exclusive: bool = True) -> bytes:
    """The canonical form of an element of a document, without signature markers."""
    root = etree.fromstring(re.sub("@[a-z]+@", "", text).encode())
    node = root if element_id is None else root.xpath("//*[@ID=$id]", id=element_id)[0]
    lone = etree.fromstring(etree.tostring(node, with_tail=False))
    listed = html.unescape(prefixes).split() or None
    return bytes(etree.tostring(lone, method="c14n", exclusive=exclusive, inclusive_ns_prefixes=listed))


def signature_value(content: bytes, style: Style, signer: Signer) -> bytes:
    name = re.split("[-#]", style.method)[-1]
    if style.hmac_key is not None:
        return hmac.digest(style.hmac_key, content, name)
    algorithm = _HASHES[name]()
    if isinstance(signer.key, rsa.RSAPrivateKey):
        return signer.key.sign(content, padding.PKCS1v15(), algorithm)
    r, s = utils.decode_dss_signature(signer.key.sign(content, ec.ECDSA(algorithm)))
    size = (signer.key.key_size + 7) // 8
    return r.to_bytes(size, "big") + s.to_bytes(size, "big")


def signed_info_text(digest: bytes, reference: str, style: Style) -> str:
    """SignedInfo as it stands in a Signature element of the style, whose prefix it inherits."""
    mark = f"{style.prefix}:" if style.prefix else ""
    listed = (
        f'<ec:InclusiveNamespaces xmlns:ec="{EXCLUSIVE}" PrefixList="{style.prefix_list}"/>'
        if style.prefix_list
        else ""
    )
    transforms = "".join(
        f'<{mark}Transform Algorithm="{uri}">{listed if uri == EXCLUSIVE else ""}</{mark}Transform>'
        for uri in style.transforms
    )
    space = style.inner_space
    return (
        f'<{mark}SignedInfo>{space}<{mark}CanonicalizationMethod Algorithm="{style.canonicalization}"/>{space}'
        f'<{mark}SignatureMethod Algorithm="{style.method}"/>{space}<{mark}Reference URI="{reference}">{space}'
        f'<{mark}Transforms>{transforms}</{mark}Transforms>{space}<{mark}DigestMethod Algorithm="{style.digest}"/>{space}'
        f"<{mark}DigestValue>{base64.b64encode(digest).decode()}</{mark}DigestValue>{space}</{mark}Reference>"
        f"{style.more_references}{space}</{mark}SignedInfo>"
    )


def signature_text(signed_info: str, signer: Signer, style: Style) -> str:
    """A Signature element over a SignedInfo."""
    mark = f"{style.prefix}:" if style.prefix else ""
    opening = f'<{mark}Signature xmlns{":" + style.prefix if style.prefix else ""}="{DS}">'
    closing = f"</{mark}Signature>"
    content = canonical_child(f"{opening}{signed_info}{closing}", style)
    value = base64.b64encode(signature_value(content, style, signer)).decode()
    key_info = (
        f"<{mark}KeyInfo><{mark}X509Data><{mark}X509Certificate>{signer.base64}"
        f"</{mark}X509Certificate></{mark}X509Data></{mark}KeyInfo>"
        if style.key_info is None
        else style.key_info
    )
    return f"{opening}{signed_info}<{mark}SignatureValue>{value}</{mark}SignatureValue>{key_info}{closing}"


def canonical_child(text: str, style: Style) -> bytes:
    exclusive, comments = style.canonicalization.startswith(EXCLUSIVE), style.canonicalization.endswith("WithComments")
    node = etree.fromstring(text.encode())[0]
    return bytes(etree.tostring(node, method="c14n", exclusive=exclusive, with_comments=comments))


def sign(text: str, marker: str, element_id: str, signer: Signer, style: Style) -> str:
    """Put the signature of an element where its marker stands."""
    exclusive = EXCLUSIVE in style.transforms
    content = canonical(text, element_id=element_id, prefixes=style.prefix_list, exclusive=exclusive)
    digest = hashlib.new(style.digest.rpartition("#")[2], content).digest()
    reference = f"#{element_id}" if style.reference is None else style.reference
    return text.replace(f"@{marker}@", signature_text(signed_info_text(digest, reference, style), signer, style))


def respond(
    claims: Claims | None = None,
    *,
    signed: str = "assertion",
    signer: Signer | None = None,
    style: Style | None = None,
    assertion: str | None = None,
) -> bytes:
    """A response; `signed` names what is: `assertion`, `response`, `both` or `none`."""
    claims, signer, style = claims or Claims(), signer or rsa_signer(), style or Style()
    text = response_text(claims, assertion_text(claims) if assertion is None else assertion)
    if signed in ("assertion", "both"):
        text = sign(text, "assertion", claims.assertion_id, signer, style)
    text = text.replace("@assertion@", "")
    if signed in ("response", "both"):
        text = sign(text, "response", claims.response_id, signer, style)
    return text.replace("@response@", "").encode()


# --- encryption ------------------------------------------------------------------------------------------------------

XENC = "http://www.w3.org/2001/04/xmlenc#"
XENC11 = "http://www.w3.org/2009/xmlenc11#"
AES256_GCM = f"{XENC11}aes256-gcm"
AES256_CBC = f"{XENC}aes256-cbc"
OAEP_MGF1P = f"{XENC}rsa-oaep-mgf1p"
RSA15 = f"{XENC}rsa-1_5"


def oaep(name: str = "sha1", mask: str | None = None) -> padding.OAEP:
    return padding.OAEP(padding.MGF1(_HASHES[mask or name]()), _HASHES[name](), None)


def encrypted_text(
    plaintext: bytes,
    *,
    algorithm: str = AES256_GCM,
    transport: str = OAEP_MGF1P,
    parameters: str = "",
    key_padding: padding.AsymmetricPadding | None = None,
    key: Any = None,
    content_key: bytes | None = None,
    beside: bool = False,
) -> str:
    """An EncryptedAssertion; `beside` puts the encrypted key beside the data, as SimpleSAMLphp does."""
    content_key = content_key or os.urandom(int(algorithm.rpartition("aes")[2][:3]) // 8)
    if algorithm.endswith("gcm"):
        nonce = os.urandom(12)
        ciphertext = nonce + AESGCM(content_key).encrypt(nonce, plaintext, None)
    else:
        initial = os.urandom(16)
        added = 16 - len(plaintext) % 16
        encryptor = Cipher(algorithms.AES(content_key), modes.CBC(initial)).encryptor()
        ciphertext = (
            initial + encryptor.update(plaintext + os.urandom(added - 1) + bytes([added])) + encryptor.finalize()
        )
    encrypted_key = (key or platform_key().public_key()).encrypt(content_key, key_padding or oaep())
    key_text = (
        f'<xenc:EncryptedKey xmlns:xenc="{XENC}"><xenc:EncryptionMethod Algorithm="{transport}">{parameters}'
        f"</xenc:EncryptionMethod><xenc:CipherData><xenc:CipherValue>{base64.encodebytes(encrypted_key).decode()}"
        "</xenc:CipherValue></xenc:CipherData></xenc:EncryptedKey>"
    )
    inside = "" if beside else f'<ds:KeyInfo xmlns:ds="{DS}">{key_text}</ds:KeyInfo>'
    return (
        f'<saml:EncryptedAssertion><xenc:EncryptedData xmlns:xenc="{XENC}" Type="{XENC}Element">'
        f'<xenc:EncryptionMethod Algorithm="{algorithm}"/>{inside}<xenc:CipherData><xenc:CipherValue>'
        f"{base64.encodebytes(ciphertext).decode()}</xenc:CipherValue></xenc:CipherData></xenc:EncryptedData>"
        f"{key_text if beside else ''}</saml:EncryptedAssertion>"
    )


def signed_assertion(
    claims: Claims | None = None, *, signer: Signer | None = None, style: Style | None = None
) -> bytes:
    """An assertion by itself, signed."""
    claims = claims or Claims()
    text = sign(assertion_text(claims), "assertion", claims.assertion_id, signer or rsa_signer(), style or Style())
    return text.encode()


def unsigned_assertion(claims: Claims | None = None) -> bytes:
    return assertion_text(claims or Claims()).replace("@assertion@", "").encode()


# --- the platform's side ---------------------------------------------------------------------------------------------


def connection(*signers: Signer) -> SamlConnection:
    return SamlConnection(
        identity_provider=IDP,
        service_provider=SP,
        acs_url=ACS,
        certificates=tuple(signer.certificate for signer in signers or (rsa_signer(),)),
        decryption_keys=(platform_key(),),
    )


def read(document: bytes, *signers: Signer, now: datetime = NOW) -> Identity:
    """Read a response as the platform does, with the certificates of the signers."""
    return read_response(document, connection=connection(*signers), request_id=REQUEST, now=now)
