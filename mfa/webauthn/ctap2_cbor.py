"""CBOR as authenticators write it (CTAP 2.2 section 8, "Message Encoding"): no tags, definite lengths, little nesting.

Looked at before any decoder sees it. Tags are programs for a decoder: they have it compile patterns, parse mails, and share
values. Two hundred bytes of arrays that share each other are gigabytes once they are encoded again, which the library does
with what it has decoded (webauthn 3.0.1, cbor2 6.2.1), before it looks at a signature.
"""

from typing import Final

import cbor2

from mfa.webauthn.responses import CeremonyFailed

# A statement of attestation with its chain of certificates has four levels (CTAP 2.2 section 8).
DEEPEST: Final = 8
ODD: Final = "CBOR that no authenticator writes"

# Major types (RFC 8949 section 3.1).
_STRINGS, _ARRAY, _MAP, _TAG = (2, 3), 4, 5, 6
_ATTESTED, _EXTENDED = 0x40, 0x80
# Hash of the relying party id, flags, counter; then, with a credential, the model and the length of its id.
_HEAD, _FLAGS, _ID_LENGTH = 37, 32, 53
# A key of some authenticators: a map that says three pairs and has four, which the library reads as one of four.
_SHORT_OF_ONE, _FOUR_PAIRS = bytes.fromhex("a301634f4b500327206745643235353139"), b"\xa4"


def end_of_item(data: bytes, at: int = 0, levels: int = DEEPEST) -> int:
    """Where the item that begins there ends. CeremonyFailed unless it is whole and as an authenticator writes it."""
    if at >= len(data) or levels == 0:
        raise CeremonyFailed(ODD)
    kind, number = data[at] >> 5, data[at] & 0x1F
    at += 1
    # 28 to 30 mean nothing, 31 a length that is not said.
    if kind == _TAG or number > 27:
        raise CeremonyFailed(ODD)
    if number >= 24:
        size = 1 << (number - 24)
        number = int.from_bytes(data[at : at + size], "big")
        at += size
    if kind in _STRINGS:
        at += number
    elif kind in (_ARRAY, _MAP):
        # However many are announced: where nothing is left it ends.
        for _ in range(number * (2 if kind == _MAP else 1)):
            at = end_of_item(data, at, levels - 1)
    if at > len(data):
        raise CeremonyFailed(ODD)
    return at


def check_authenticator_data(data: bytes) -> None:
    """Look at the CBOR in authenticator data (WebAuthn Level 3 section 6.1): public key and extensions, nothing else of it.

    CeremonyFailed unless what stands behind the fixed part is a row of such items.
    """
    if len(data) <= _HEAD or not data[_FLAGS] & (_ATTESTED | _EXTENDED):
        return  # there is none, or what there is makes no sense to the library either
    at = _HEAD
    if data[_FLAGS] & _ATTESTED:
        at = _ID_LENGTH + 2 + int.from_bytes(data[_ID_LENGTH : _ID_LENGTH + 2], "big")
        if data.startswith(_SHORT_OF_ONE, at):
            data = data[:at] + _FOUR_PAIRS + data[at + 1 :]
        end = end_of_item(data, at)
        # The library looks for the extensions as far behind the key's beginning as the key is long when it writes it
        # itself: for one that was written otherwise, in the middle of something.
        if len(cbor2.dumps(cbor2.loads(data[at:end]))) != end - at:
            raise CeremonyFailed(ODD)
        at = end
    while at < len(data):
        at = end_of_item(data, at)
