"""Which public keys a registration may store (WebAuthn Level 3, sections 5.8.5 and 6.5.1.1).

Without attestation nothing has used the key before. Anybody could sign in under a degenerate key, and the libraries that
verify signatures accept such keys, so they are rejected here.
"""

from math import gcd, prod
from typing import Final

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from nacl.bindings import crypto_core_ed25519_is_valid_point

from mfa.webauthn.responses import CeremonyFailed

# A key of 16,384 bits costs the verifier a hundred times one of 2,048.
_RSA_BITS: Final = range(2048, 4097)
# FIPS 186-5 section 5.1 requires more than 2^16; common verifiers read at most 32 bits.
_RSA_EXPONENT_BITS: Final = range(17, 33)
# NIST SP 800-89 section 5.3.3: a modulus has no factor below 752.
_SMALL_FACTORS: Final = prod(n for n in range(2, 752) if all(n % below for below in range(2, n)))


def check_public_key(encoded: bytes) -> None:
    """Raise CeremonyFailed unless `encoded` is a COSE key of an offered algorithm with its parameters and no others.

    Labels and values: RFC 9052 section 7.1 (1 key type, 3 algorithm), RFC 9053 section 7.1 (-1 curve, -2 x, -3 y),
    RFC 8230 section 4 (-1 modulus, -2 exponent).
    """
    match _plain_map(cbor2.loads(encoded)):
        case {1: 2, 3: -7, -1: 1, -2: bytes(x), -3: bytes(y), **more} if not more:  # ES256 on P-256
            fits = _is_on_p256(x, y)
        case {1: 1, 3: -8, -1: 6, -2: bytes(x), **more} if not more:  # EdDSA on Ed25519
            # True only for canonical encodings of points in the prime-order subgroup.
            fits = len(x) == 32 and crypto_core_ed25519_is_valid_point(x)
        case {1: 3, 3: -257, -1: bytes(n), -2: bytes(e), **more} if not more:  # RS256
            fits = _is_strong_rsa(int.from_bytes(n, "big"), int.from_bytes(e, "big"))
        case _:
            fits = False
    if not fits:
        raise CeremonyFailed("key does not fit its algorithm")


def _plain_map(decoded: object) -> dict[int, int | bytes] | None:
    """The key if it is a map of integers and byte strings. Python takes 1, 1.0 and True for the same label or value."""
    if not isinstance(decoded, dict):
        return None
    return decoded if all(type(part) in (int, bytes) for pair in decoded.items() for part in pair) else None


def _is_on_p256(x: bytes, y: bytes) -> bool:
    if (len(x), len(y)) != (32, 32):
        return False
    try:
        EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b"\x04" + x + y)
    except ValueError:
        return False
    return True


def _is_strong_rsa(n: int, e: int) -> bool:
    return (
        n.bit_length() in _RSA_BITS
        and e.bit_length() in _RSA_EXPONENT_BITS
        and e % 2 == 1
        and gcd(n, _SMALL_FACTORS) == 1
    )
