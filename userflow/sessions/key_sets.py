"""What a process signs and verifies the tokens of one owner with."""

from dataclasses import dataclass, field
from datetime import datetime

from identity_platform.api.json_documents import JsonDocument
from userflow.sessions.key_pairs import PrivateKey, PublicKey
from userflow.sessions.models import Jwk


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key and its id."""

    kid: str
    key: PrivateKey


@dataclass(frozen=True, slots=True)
class Verifier:
    """A public key and the only algorithm that it verifies."""

    algorithm: str
    key: PublicKey


@dataclass(frozen=True, slots=True)
class KeySet:
    """What this process signs and verifies one owner's tokens with; signers by algorithm, verifiers by key id."""

    signers: dict[str, Signer]
    verifiers: dict[str, Verifier]
    jwks: list[Jwk]
    # The same as verifiers read it (RFC 7517 section 5).
    document: JsonDocument
    # When the next key of an algorithm begins to sign.
    starts: dict[str, datetime]
    # Algorithms of the owner without a key that signs or will sign.
    missing: frozenset[str]
    read_at: float
    # Key ids that were looked up since the set was read, and are of no valid key.
    unknown: set[str] = field(default_factory=set)
