"""Decryption of assertions (XML Encryption 1.1): RSA-OAEP for the key, AES-GCM for the assertion.

Encryption is not authentication: our encryption key is public, so everyone can encrypt. The caller demands a signature of
the decrypted assertion or of the Response. AES-CBC, whose plaintext an attacker can change, is decrypted only inside a signed
Response; RSA with PKCS #1 v1.5 padding never is (Bleichenbacher). Every failed decryption raises the same error, and a
wrong key is replaced by a random one, so that no response tells which part failed.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from federation.saml.documents import (
    ENCRYPTION,
    ENCRYPTION11,
    SIGNATURE,
    DocumentRejected,
    Element,
    decoded,
    in_context,
)
from federation.saml.rejections import AssertionRejected, Reason
from federation.saml.signatures import ASSERTION_TAG

OAEP_MGF1P: Final = "http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p"
OAEP: Final = "http://www.w3.org/2009/xmlenc11#rsa-oaep"
# Algorithm: bytes of its key. The first of each is what our metadata asks for.
GCM_KEYS: Final = {
    "http://www.w3.org/2009/xmlenc11#aes256-gcm": 32,
    "http://www.w3.org/2009/xmlenc11#aes192-gcm": 24,
    "http://www.w3.org/2009/xmlenc11#aes128-gcm": 16,
}
CBC_KEYS: Final = {
    "http://www.w3.org/2001/04/xmlenc#aes256-cbc": 32,
    "http://www.w3.org/2001/04/xmlenc#aes192-cbc": 24,
    "http://www.w3.org/2001/04/xmlenc#aes128-cbc": 16,
}
# SHA-1 is safe here: OAEP does not depend on collision resistance, and it is the default of most identity providers.
_SHA1: Final = "http://www.w3.org/2000/09/xmldsig#sha1"
_DIGESTS: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    _SHA1: hashes.SHA1,
    "http://www.w3.org/2001/04/xmlenc#sha256": hashes.SHA256,
    "http://www.w3.org/2001/04/xmldsig-more#sha384": hashes.SHA384,
    "http://www.w3.org/2001/04/xmlenc#sha512": hashes.SHA512,
}
_MGF1_SHA1: Final = "http://www.w3.org/2009/xmlenc11#mgf1sha1"
_MASKS: Final[dict[str, type[hashes.HashAlgorithm]]] = {
    _MGF1_SHA1: hashes.SHA1,
    "http://www.w3.org/2009/xmlenc11#mgf1sha256": hashes.SHA256,
    "http://www.w3.org/2009/xmlenc11#mgf1sha384": hashes.SHA384,
    "http://www.w3.org/2009/xmlenc11#mgf1sha512": hashes.SHA512,
}
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 16


class _Ciphertext(NamedTuple):
    """The algorithms and ciphertexts of an EncryptedAssertion."""

    algorithm: str
    ciphertext: bytes
    padding: padding.OAEP
    encrypted_key: bytes


def decrypt(
    encrypted: Element,
    keys: Sequence[rsa.RSAPrivateKey],
    *,
    namespaces: Mapping[str | None, str],
    response_signed: bool,
) -> bytes:
    """Decrypt an EncryptedAssertion with one of the keys and return the document of the Assertion.

    `namespaces` are those in scope at the EncryptedAssertion, by prefix: the Assertion may use them. Raises
    AssertionRejected: encryption_not_allowed for the algorithms, which are visible, and decryption_failed for everything
    else.
    """
    parts = _parts_of(encrypted, response_signed=response_signed)
    for key in keys:
        plaintext = _plaintext(parts, _content_key(parts, key))
        try:
            return in_context(plaintext, namespaces, ASSERTION_TAG)
        except DocumentRejected:
            continue
    raise _failed()


def _parts_of(encrypted: Element, *, response_signed: bool) -> _Ciphertext:
    """Read the one EncryptedData and the one EncryptedKey, which is inside its KeyInfo or beside it."""
    body = _only(encrypted, f"{ENCRYPTION}EncryptedData")
    key_infos = body.all(f"{SIGNATURE}KeyInfo")
    carriers = [*key_infos, encrypted]
    encrypted_keys = [key for carrier in carriers for key in carrier.all(f"{ENCRYPTION}EncryptedKey")]
    if len(encrypted_keys) != 1:
        raise _failed()
    algorithm = _only(body, f"{ENCRYPTION}EncryptionMethod").attributes.get("Algorithm", "")
    if algorithm not in GCM_KEYS and not (response_signed and algorithm in CBC_KEYS):
        raise AssertionRejected(Reason.ENCRYPTION_NOT_ALLOWED, expected=", ".join(GCM_KEYS), received=algorithm)
    method = _only(encrypted_keys[0], f"{ENCRYPTION}EncryptionMethod")
    return _Ciphertext(algorithm, _cipher_value(body), _padding_of(method), _cipher_value(encrypted_keys[0]))


def _padding_of(method: Element) -> padding.OAEP:
    """Return the padding of an EncryptedKey (XML Encryption 1.1 section 5.5.2). Labels (OAEPparams) are not supported."""
    algorithm = method.attributes.get("Algorithm", "")
    digest = _parameter(method, f"{SIGNATURE}DigestMethod", _SHA1)
    mask = _parameter(method, f"{ENCRYPTION11}MGF", _MGF1_SHA1)
    if algorithm not in (OAEP, OAEP_MGF1P) or (algorithm == OAEP_MGF1P and mask != _MGF1_SHA1):
        raise AssertionRejected(Reason.ENCRYPTION_NOT_ALLOWED, expected=f"{OAEP}, {OAEP_MGF1P}", received=algorithm)
    if digest not in _DIGESTS or mask not in _MASKS:
        raise AssertionRejected(Reason.ENCRYPTION_NOT_ALLOWED, received=f"{algorithm}: {digest} {mask}")
    if method.all(f"{ENCRYPTION}OAEPparams"):
        raise AssertionRejected(Reason.ENCRYPTION_NOT_ALLOWED, received="OAEPparams")
    return padding.OAEP(mgf=padding.MGF1(_MASKS[mask]()), algorithm=_DIGESTS[digest](), label=None)


def _parameter(method: Element, tag: str, default: str) -> str:
    parameters = method.all(tag)
    if len(parameters) > 1:
        raise _failed()
    return parameters[0].attributes.get("Algorithm", "") if parameters else default


def _cipher_value(element: Element) -> bytes:
    """Return the ciphertext. Only CipherValue: a CipherReference names an address that we would have to request."""
    try:
        return decoded(_only(_only(element, f"{ENCRYPTION}CipherData"), f"{ENCRYPTION}CipherValue").text)
    except DocumentRejected as problem:
        raise _failed() from problem


def _content_key(parts: _Ciphertext, key: rsa.RSAPrivateKey) -> bytes:
    """Return the content key, or a random one if it cannot be decrypted: both take the same way from here."""
    size = (GCM_KEYS | CBC_KEYS)[parts.algorithm]
    substitute = secrets.token_bytes(size)
    try:
        content_key = key.decrypt(parts.encrypted_key, parts.padding)
    except ValueError:
        return substitute
    return content_key if len(content_key) == size else substitute


def _plaintext(parts: _Ciphertext, content_key: bytes) -> bytes:
    """Return the plaintext (XML Encryption 1.1 sections 5.2.2 and 5.2.4), empty if the decryption fails."""
    if parts.algorithm in GCM_KEYS:
        if len(parts.ciphertext) < _NONCE_BYTES + _TAG_BYTES:
            return b""
        try:
            return AESGCM(content_key).decrypt(parts.ciphertext[:_NONCE_BYTES], parts.ciphertext[_NONCE_BYTES:], None)
        except InvalidTag:
            return b""
    if len(parts.ciphertext) % _BLOCK_BYTES or len(parts.ciphertext) < 2 * _BLOCK_BYTES:
        return b""
    iv, blocks = parts.ciphertext[:_BLOCK_BYTES], parts.ciphertext[_BLOCK_BYTES:]
    decryptor = Cipher(algorithms.AES(content_key), modes.CBC(iv)).decryptor()
    padded = decryptor.update(blocks) + decryptor.finalize()
    # Only the last byte says how much was added; the others are arbitrary.
    return padded[: -padded[-1]] if 1 <= padded[-1] <= _BLOCK_BYTES else b""


def _only(element: Element, tag: str) -> Element:
    children = element.all(tag)
    if len(children) != 1:
        raise _failed()
    return children[0]


def _failed() -> AssertionRejected:
    return AssertionRejected(Reason.DECRYPTION_FAILED)
