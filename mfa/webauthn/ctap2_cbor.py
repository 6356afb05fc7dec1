"""CBOR as authenticators write it (CTAP 2.2 section 8, "Message Encoding"): no tags, definite lengths, little nesting.

Checked before any decoder reads it. Tags make a decoder compile patterns, parse mails and share values. Two hundred bytes of
arrays that share each other become gigabytes when they are encoded again, and the library encodes what it has decoded
(webauthn 3.0.1, cbor2 6.2.1) before it verifies a signature.
"""

from typing import Final

import cbor2

from mfa.webauthn.responses import CeremonyFailed

# An attestation statement with its certificate chain has four levels (CTAP 2.2 section 8).
DEEPEST: Final = 8
NOT_CTAP2: Final = "CBOR that no authenticator writes"

# Major types (RFC 8949 section 3.1).
_STRINGS, _ARRAY, _MAP, _TAG = (2, 3), 4, 5, 6
_ATTESTED, _EXTENDED = 0x40, 0x80
# Hash of the relying party id, flags, counter; with a credential also the AAGUID and the length of the credential id.
_HEAD, _FLAGS, _ID_LENGTH = 37, 32, 53
# A key of some authenticators: a map that announces three pairs and has four. The library reads four.
_SHORT_OF_ONE, _FOUR_PAIRS = bytes.fromhex("a301634f4b500327206745643235353139"), b"\xa4"


def end_of_item(data: bytes, at: int = 0, levels: int = DEEPEST) -> int:
    """Return where the item that begins at `at` ends. Raise CeremonyFailed unless it is complete CTAP2 CBOR."""
    if at >= len(data) or levels == 0:
        raise CeremonyFailed(NOT_CTAP2)
    kind, number = data[at] >> 5, data[at] & 0x1F
    at += 1
    # 28 to 30 are reserved, 31 is an indefinite length.
    if kind == _TAG or number > 27:
        raise CeremonyFailed(NOT_CTAP2)
    if number >= 24:
        size = 1 << (number - 24)
        number = int.from_bytes(data[at : at + size], "big")
        at += size
    if kind in _STRINGS:
        at += number
    elif kind in (_ARRAY, _MAP):
        # A length that is longer than the data ends with an error at its end.
        for _ in range(number * (2 if kind == _MAP else 1)):
            at = end_of_item(data, at, levels - 1)
    if at > len(data):
        raise CeremonyFailed(NOT_CTAP2)
    return at


def check_authenticator_data(data: bytes) -> None:
    """Check the CBOR in authenticator data (WebAuthn Level 3 section 6.1), which is the public key and extensions.

    Raises CeremonyFailed unless the fixed part is followed by a sequence of such items.
    """
    if len(data) <= _HEAD or not data[_FLAGS] & (_ATTESTED | _EXTENDED):
        return  # there is no CBOR, or the data is too short for the library as well
    at = _HEAD
    if data[_FLAGS] & _ATTESTED:
        at = _ID_LENGTH + 2 + int.from_bytes(data[_ID_LENGTH : _ID_LENGTH + 2], "big")
        if data.startswith(_SHORT_OF_ONE, at):
            data = data[:at] + _FOUR_PAIRS + data[at + 1 :]
        end = end_of_item(data, at)
        # The library expects the extensions after as many bytes as its own encoding of the key has. With another encoding
        # it would read from the middle of an item.
        if len(cbor2.dumps(cbor2.loads(data[at:end]))) != end - at:
            raise CeremonyFailed(NOT_CTAP2)
        at = end
    while at < len(data):
        at = end_of_item(data, at)
