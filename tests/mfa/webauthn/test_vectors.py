"""The test vectors of WebAuthn Level 3 (W3C, section 16) through our one verifier."""

import json
from pathlib import Path
from typing import Any

import pytest

from mfa.webauthn import ceremony, responses
from mfa.webauthn.ceremony import KnownPasskey, RelyingParty
from mfa.webauthn.responses import CeremonyFailed
from tests.mfa.webauthn.authenticator import unb64

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "webauthn-l3-vectors.json").read_text(encoding="utf-8")
)
RP = RelyingParty("example.org", "Example", ("https://example.org",))
# Which of them a relying party with our options takes, and why it does not take the others. A use is judged with the
# vector's own public key, so it does not depend on the registration.
CROSS_ORIGIN = "cross-origin"
NOT_OFFERED = "InvalidRegistrationResponse"  # an algorithm that our options do not name
NO_TRUST = "InvalidRegistrationResponse"  # attestation of a made-up authority, which we did not ask for
EXPECTED: dict[str, tuple[str | None, str | None]] = {
    "none-es256": (None, None),
    "packed-self-es256": (None, None),
    "none-es256-crossOrigin": (CROSS_ORIGIN, CROSS_ORIGIN),
    "none-es256-topOrigin": (CROSS_ORIGIN, CROSS_ORIGIN),
    "none-es256-long-credential-id": (None, None),
    "packed-es256": (None, None),
    "packed-es384": (NOT_OFFERED, "UnsupportedAlgorithm"),
    "packed-es512": (NOT_OFFERED, None),
    "packed-rs256": (None, None),
    "packed-eddsa": (None, None),
    "packed-ed448": (NOT_OFFERED, "UnsupportedPublicKey"),
    "tpm-es256": (NO_TRUST, None),
    "android-key-es256": (NO_TRUST, None),
    "apple-es256": (NO_TRUST, None),
    "fido-u2f-es256": (NO_TRUST, None),
}


def test_all_fifteen_vectors_are_present() -> None:
    assert [vector["ident"] for vector in VECTORS] == list(EXPECTED)


def _outcome(check: Any) -> str | None:
    try:
        check()
    except CeremonyFailed as problem:
        return problem.reason
    return None


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["ident"])
def test_registration(vector: dict[str, Any]) -> None:
    def check() -> None:
        new = ceremony.verify_registration(
            response=vector["reg"],
            expected_challenge=unb64(vector["reg_challenge"]),
            rp=RP,
            require_verification=False,
        )
        assert new.public_key == unb64(vector["pk"])

    assert responses.challenge_of(vector["reg"]) == unb64(vector["reg_challenge"])
    assert _outcome(check) == EXPECTED[vector["ident"]][0]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["ident"])
def test_authentication(vector: dict[str, Any]) -> None:
    flags = unb64(vector["auth"]["response"]["authenticatorData"])[32]

    def check() -> None:
        ceremony.verify_assertion(
            response=vector["auth"],
            expected_challenge=unb64(vector["auth_challenge"]),
            rp=RP,
            passkey=KnownPasskey(unb64(vector["reg"]["id"]), unb64(vector["pk"]), b"user", bool(flags & 0x08)),
            require_verification=False,
            require_user_handle=False,
        )

    assert _outcome(check) == EXPECTED[vector["ident"]][1]
