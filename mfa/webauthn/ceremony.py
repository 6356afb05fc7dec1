"""WebAuthn ceremonies in bytes: options out, responses in. The only importer of py_webauthn; no ORM, no HTTP.

The checks that the library leaves to the relying party (WebAuthn Level 3, sections 7.1 and 7.2) are here: cross-origin use,
the backup-eligible flag, the user handle, the length of a credential id, one spelling for each value. The database ensures
that a challenge is used once and that the signature counter rises (`mfa.webauthn.queries`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import cbor2
from cryptography.exceptions import InvalidSignature
from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import parse_attestation_object, parse_authenticator_data
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.options_to_json_dict import options_to_json_dict
from webauthn.helpers.structs import (
    AttestationConveyancePreference,
    AuthenticatorDataFlags,
    AuthenticatorSelectionCriteria,
    AuthenticatorTransport,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from mfa.webauthn.ctap2_cbor import check_authenticator_data, end_of_item
from mfa.webauthn.public_keys import check_public_key
from mfa.webauthn.responses import CeremonyFailed, bytes_of, client_data_of, credential_id_of, inner_of, part_of, plain

# Level 3 section 5.4: every authenticator on the market supports one of these three.
ALGORITHMS: Final = [
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
]
CHALLENGE_BYTES: Final = 32  # section 13.4.3 asks for 16 at least
TIMEOUT_MS: Final = 300_000  # as long as the challenge lives
TRANSPORTS: Final = frozenset(transport.value for transport in AuthenticatorTransport)

Verification = Literal["required", "preferred"]


@dataclass(frozen=True, slots=True)
class RelyingParty:
    """The relying party of a passkey: its id is a domain, its origins are the pages that may use it."""

    id: str
    name: str
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyHandle:
    """How a browser finds a passkey: its credential id and transports."""

    credential_id: bytes
    transports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewPasskey:
    credential_id: bytes
    public_key: bytes
    sign_count: int
    aaguid: str
    transports: tuple[str, ...]
    user_verified: bool
    backup_eligible: bool
    backed_up: bool
    rp_id: str


@dataclass(frozen=True, slots=True)
class KnownPasskey:
    """The stored fields of a passkey that verify its use."""

    credential_id: bytes
    public_key: bytes
    user_handle: bytes
    backup_eligible: bool


@dataclass(frozen=True, slots=True)
class Assertion:
    """A verified use of a passkey. The database checks whether the counter has risen."""

    sign_count: int
    user_verified: bool
    backed_up: bool


# --- options ---------------------------------------------------------------------------------------------------------


def creation_options(
    *,
    rp: RelyingParty,
    challenge: bytes,
    user_handle: bytes,
    user_name: str,
    display_name: str,
    exclude: Iterable[KeyHandle],
    verification: Verification,
) -> dict[str, object]:
    """Return options for PublicKeyCredential.parseCreationOptionsFromJSON() (Level 3 section 5.1.8).

    Discoverable credentials are preferred, attestation is not asked for, and the user's own passkeys are excluded.
    """
    options = generate_registration_options(
        rp_id=rp.id,
        rp_name=rp.name,
        user_id=user_handle,
        user_name=user_name,
        user_display_name=display_name,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        attestation=AttestationConveyancePreference.NONE,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.PREFERRED,
            require_resident_key=False,
            user_verification=UserVerificationRequirement(verification),
        ),
        exclude_credentials=[_descriptor(handle) for handle in exclude],
        supported_pub_key_algs=ALGORITHMS,
    )
    return options_to_json_dict(options)


def request_options(
    *, rp: RelyingParty, challenge: bytes, allow: Iterable[KeyHandle], verification: Verification
) -> dict[str, object]:
    """Return options for PublicKeyCredential.parseRequestOptionsFromJSON() (Level 3 section 5.1.9).

    An empty `allow` asks for any discoverable credential of the relying party.
    """
    options = generate_authentication_options(
        rp_id=rp.id,
        challenge=challenge,
        timeout=TIMEOUT_MS,
        allow_credentials=[_descriptor(handle) for handle in allow],
        user_verification=UserVerificationRequirement(verification),
    )
    return options_to_json_dict(options)


def _descriptor(handle: KeyHandle) -> PublicKeyCredentialDescriptor:
    known = [AuthenticatorTransport(name) for name in handle.transports if name in TRANSPORTS]
    return PublicKeyCredentialDescriptor(id=handle.credential_id, transports=known or None)


# --- verification ------------------------------------------------------------------------------------------------------


def verify_registration(
    *, response: Mapping[str, object], expected_challenge: bytes, rp: RelyingParty, require_verification: bool
) -> NewPasskey:
    """Verify a registration (Level 3 section 7.1) against the challenge, relying party id and origins that are expected.

    User presence is always required, user verification only with `require_verification`. An attestation that was sent
    unrequested must be valid, but adds no trust. Raises CeremonyFailed for every error.
    """
    try:
        inner = inner_of(response)
        credential_id = credential_id_of(response)
        client_data = part_of(inner, "clientDataJSON")
        attestation = part_of(inner, "attestationObject")
        _reject_foreign_page(client_data_of(client_data))
        _reject_odd_attestation(attestation)
        verified = verify_registration_response(
            credential=plain(credential_id, clientDataJSON=client_data, attestationObject=attestation),
            expected_challenge=expected_challenge,
            expected_rp_id=rp.id,
            expected_origin=list(rp.origins),
            require_user_presence=True,
            require_user_verification=require_verification,
            supported_pub_key_algs=ALGORITHMS,
        )
        if verified.credential_id != credential_id:
            raise CeremonyFailed("the attested credential id is another one")
        check_public_key(verified.credential_public_key)
        flags = parse_attestation_object(attestation).auth_data.flags
    except CeremonyFailed:
        raise
    # The library and its decoders reject input with many exceptions: WebAuthnException, ValueError, KeyError, TypeError,
    # AttributeError, binascii.Error, UnsupportedAlgorithm, RecursionError, OverflowError ...
    except Exception as problem:
        raise CeremonyFailed(_reason(problem)) from problem
    transports = inner.get("transports")
    transport_names = transports if isinstance(transports, list) else []
    return NewPasskey(
        credential_id=credential_id,
        public_key=verified.credential_public_key,
        sign_count=verified.sign_count,
        aaguid=verified.aaguid,
        transports=tuple(sorted({name for name in transport_names if isinstance(name, str) and name in TRANSPORTS})),
        user_verified=verified.user_verified,
        backup_eligible=flags.be,
        backed_up=verified.credential_backed_up,
        rp_id=rp.id,
    )


def verify_assertion(
    *,
    response: Mapping[str, object],
    expected_challenge: bytes,
    rp: RelyingParty,
    passkey: KnownPasskey,
    require_verification: bool,
    require_user_handle: bool,
) -> Assertion:
    """Verify the use of a passkey (Level 3 section 7.2), in the order of the standard, the signature last.

    `require_user_handle` is for a sign-in that has not named a user before (step 6). Raises CeremonyFailed.
    """
    try:
        inner = inner_of(response)
        credential_id = credential_id_of(response)
        if credential_id != passkey.credential_id:
            raise CeremonyFailed("another credential id")
        _reject_foreign_handle(inner.get("userHandle"), passkey.user_handle, required=require_user_handle)
        client_data = part_of(inner, "clientDataJSON")
        authenticator_data = part_of(inner, "authenticatorData")
        _reject_foreign_page(client_data_of(client_data))
        check_authenticator_data(authenticator_data)
        flags = parse_authenticator_data(authenticator_data).flags
        _reject_flipped_backup(flags, passkey)
        verified = verify_authentication_response(
            credential=plain(
                credential_id,
                clientDataJSON=client_data,
                authenticatorData=authenticator_data,
                signature=part_of(inner, "signature"),
            ),
            expected_challenge=expected_challenge,
            expected_rp_id=rp.id,
            expected_origin=list(rp.origins),
            credential_public_key=passkey.public_key,
            # The library would compare with a value that was read earlier: two uses of one clone could both pass.
            credential_current_sign_count=0,
            require_user_verification=require_verification,
        )
    except CeremonyFailed:
        raise
    except Exception as problem:  # as above
        raise CeremonyFailed(_reason(problem)) from problem
    return Assertion(
        sign_count=verified.new_sign_count,
        user_verified=verified.user_verified,
        backed_up=verified.credential_backed_up,
    )


def _reject_foreign_page(client_data: Mapping[str, object]) -> None:
    """Reject ceremonies that are embedded in a page of another origin (sections 7.1 steps 10-11 and 7.2 steps 13-14)."""
    if client_data.get("crossOrigin", False) is not False or "topOrigin" in client_data:
        raise CeremonyFailed("cross-origin")


def _reject_foreign_handle(user_handle: object, handle: bytes, *, required: bool) -> None:
    """Require that the authenticator signs in the owner of the passkey (section 7.2 step 6)."""
    if user_handle is None:
        if required:
            raise CeremonyFailed("no user handle")
        return
    if bytes_of(user_handle, "userHandle") != handle:
        raise CeremonyFailed("another user's handle")


def _reject_flipped_backup(flags: AuthenticatorDataFlags, passkey: KnownPasskey) -> None:
    """Require that the backup eligibility has not changed: it never does (sections 7.2 step 19 and 6.1.3)."""
    if flags.be != passkey.backup_eligible:
        raise CeremonyFailed("backup eligibility changed")


def _reject_odd_attestation(attestation: bytes) -> None:
    """What a decoder must not see, also in the authenticator data inside; and anything behind the first item, which the
    library ignores (seen with webauthn 3.0.1)."""
    if end_of_item(attestation) != len(attestation):
        raise CeremonyFailed("leftover bytes")
    decoded = cbor2.loads(attestation, allow_duplicate_keys=False)
    # Section 8.7: the statement of the format `none` is an empty map. The library only looks at the fields it knows.
    if decoded["fmt"] == "none" and not (isinstance(decoded["attStmt"], dict) and not decoded["attStmt"]):
        raise CeremonyFailed("none with a statement")
    check_authenticator_data(decoded["authData"])


def _reason(problem: Exception) -> str:
    # The class, not the text: the library's messages quote what was sent.
    return "bad signature" if isinstance(problem, InvalidSignature) else type(problem).__name__
