"""Reading what an authenticator answers, each value in its one spelling; nothing is verified here.

Every reader raises CeremonyFailed for what it cannot read, and says which member that was.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

LONGEST_CREDENTIAL_ID: Final = 1023  # WebAuthn Level 3 section 7.1 step 25
# No client writes more; base64url of the attestation of a TPM stays below 8 KiB.
LONGEST_PART: Final = 64 * 1024


class CeremonyFailed(Exception):
    """The response does not prove what it should. `reason` is for the audit trail and never holds what was sent."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def challenge_of(response: Mapping[str, Any]) -> bytes:
    """The challenge that a response claims to answer, to look it up by; nothing is verified. CeremonyFailed if none."""
    return bytes_of(client_data_of(part_of(inner_of(response), "clientDataJSON")).get("challenge"), "challenge")


def credential_id_of(response: Mapping[str, Any]) -> bytes:
    """The credential id that a response names, in its one spelling. CeremonyFailed otherwise."""
    credential_id = bytes_of(response.get("rawId"), "rawId")
    if bytes_of(response.get("id"), "id") != credential_id:
        raise CeremonyFailed("id is not rawId")
    if not 0 < len(credential_id) <= LONGEST_CREDENTIAL_ID:
        raise CeremonyFailed("credential id length")
    return credential_id


def inner_of(response: Mapping[str, Any]) -> Mapping[str, Any]:
    """The authenticator's own part of a public-key credential (section 5.1)."""
    inner = response.get("response")
    if not isinstance(inner, Mapping):
        raise CeremonyFailed("no response")
    if response.get("type") != "public-key":
        raise CeremonyFailed("type")
    return inner


def part_of(inner: Mapping[str, Any], name: str) -> bytes:
    """One member of that part, decoded."""
    return bytes_of(inner.get(name), name)


def bytes_of(stated: Any, name: str) -> bytes:
    """Base64url (RFC 4648 section 5) with its padding or, as browsers write it, without; no other spelling.

    Python's decoder would take many more for the same bytes, and two readers could then disagree on what was sent.
    """
    if not isinstance(stated, str) or len(stated) > LONGEST_PART:
        raise CeremonyFailed(name)
    try:
        decoded = base64.b64decode(stated + "=" * (-len(stated) % 4), altchars=b"-_", validate=True)
    except ValueError as problem:
        raise CeremonyFailed(name) from problem
    padded = base64.urlsafe_b64encode(decoded).decode()
    if stated != padded and stated != padded.rstrip("="):
        raise CeremonyFailed(name)
    return decoded


def base64url(value: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def client_data_of(raw: bytes) -> dict[str, Any]:
    """Section 5.8.1, read once and strictly: one reader must not see another origin than the next."""
    try:
        found = json.loads(raw.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        raise CeremonyFailed("clientDataJSON") from problem
    if not isinstance(found, dict):
        raise CeremonyFailed("clientDataJSON")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member is there twice")
    return found


def plain(credential_id: bytes, **parts: bytes) -> dict[str, Any]:
    """The response with what the library reads and nothing else."""
    named = base64url(credential_id)
    return {
        "id": named,
        "rawId": named,
        "type": "public-key",
        "response": {name: base64url(value) for name, value in parts.items()},
    }


def digest_of(challenge: bytes) -> bytes:
    """What is stored of a challenge: who reads the database cannot answer it."""
    return hashlib.sha256(challenge).digest()
