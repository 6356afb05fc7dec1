"""Read the responses of authenticators, each value in its one spelling. Nothing is verified here.

Every reader raises CeremonyFailed for a field that it cannot read, and names the field.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Final

LONGEST_CREDENTIAL_ID: Final = 1023  # WebAuthn Level 3 section 7.1 step 25
# No client sends more: base64url of a TPM attestation is shorter than 8 KiB.
LONGEST_PART: Final = 64 * 1024


class CeremonyFailed(Exception):
    """The response does not prove what it should. `reason` is for the audit log and never contains what was sent."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def challenge_of(response: Mapping[str, object]) -> bytes:
    """Return the challenge that a response states, to look it up; nothing is verified. Raises CeremonyFailed if none."""
    return bytes_of(client_data_of(part_of(inner_of(response), "clientDataJSON")).get("challenge"), "challenge")


def credential_id_of(response: Mapping[str, object]) -> bytes:
    """Return the credential id that a response names. Raises CeremonyFailed."""
    credential_id = bytes_of(response.get("rawId"), "rawId")
    if bytes_of(response.get("id"), "id") != credential_id:
        raise CeremonyFailed("id is not rawId")
    if not 0 < len(credential_id) <= LONGEST_CREDENTIAL_ID:
        raise CeremonyFailed("credential id length")
    return credential_id


def inner_of(response: Mapping[str, object]) -> Mapping[str, object]:
    """Return the authenticator's part of a public-key credential (section 5.1)."""
    inner = response.get("response")
    if not isinstance(inner, Mapping):
        raise CeremonyFailed("no response")
    if response.get("type") != "public-key":
        raise CeremonyFailed("type")
    return inner


def part_of(inner: Mapping[str, object], name: str) -> bytes:
    """Return one field of that part, decoded."""
    return bytes_of(inner.get(name), name)


def bytes_of(encoded: object, name: str) -> bytes:
    """Decode base64url (RFC 4648 section 5) with its padding or, as browsers write it, without; no other spelling.

    Python's decoder accepts many more for the same bytes, and two readers could then disagree on what was sent.
    """
    if not isinstance(encoded, str) or len(encoded) > LONGEST_PART:
        raise CeremonyFailed(name)
    try:
        decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except ValueError as problem:
        raise CeremonyFailed(name) from problem
    padded = base64.urlsafe_b64encode(decoded).decode()
    if encoded != padded and encoded != padded.rstrip("="):
        raise CeremonyFailed(name)
    return decoded


def base64url(value: bytes) -> str:
    """Encode as base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def client_data_of(raw: bytes) -> dict[str, object]:
    """Parse the client data (section 5.8.1) strictly: two readers must not see two different origins."""
    try:
        client_data = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        raise CeremonyFailed("clientDataJSON") from problem
    if not isinstance(client_data, dict):
        raise CeremonyFailed("clientDataJSON")
    return client_data


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field occurs twice")
    return fields


def plain(credential_id: bytes, **parts: bytes) -> dict[str, object]:
    """Return the response with only the fields that the library reads."""
    encoded_id = base64url(credential_id)
    return {
        "id": encoded_id,
        "rawId": encoded_id,
        "type": "public-key",
        "response": {name: base64url(value) for name, value in parts.items()},
    }


def digest_of(challenge: bytes) -> bytes:
    """Return the stored form of a challenge: a reader of the database cannot answer it."""
    return hashlib.sha256(challenge).digest()
