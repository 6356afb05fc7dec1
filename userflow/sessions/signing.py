"""Create, seal and rotate signing keys, and cache the sets that this process signs and verifies with.

The platform's keys sign the tokens of operators and tenant admins. Each tenant has keys of its own, in its database and
sealed under its data key: they are moved, restored and shredded with it.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from threading import Lock
from typing import Final, cast
from uuid import UUID
from weakref import WeakValueDictionary

from cryptography.hazmat.primitives import serialization
from django.conf import settings
from django.db import connections, transaction
from django.db.models import Q
from django.utils.timezone import now
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from identity_platform.api.errors import Unavailable
from identity_platform.api.json_documents import JsonDocument
from identity_platform.crypto import SealBroken, SealContext, seal, unseal
from identity_platform.postgresql.transactions import advisory_lock
from tenants.errors import TenantBusy, TenantSuspended, UnknownTenant
from tenants.settings.declarations import LONGEST_ACCESS_TOKEN_SECONDS
from tenants.states import Purpose
from userflow.accounts.principals import Principal
from userflow.accounts.realms import ADMINS, END_USERS, Realm
from userflow.errors import SigningKeyNotPublished
from userflow.sessions.assurance import Action, require_assurance
from userflow.sessions.key_pairs import ES256, RS256, KeyPair, PrivateKey, PublicKey, new_key_pair
from userflow.sessions.key_sets import KeySet, Signer, Verifier
from userflow.sessions.models import Jwk, SigningKey, SigningKeyBase, TenantSigningKey

# Of a tenant's key set: each client has one for its ID tokens and one for its access tokens.
ALGORITHMS: Final = (ES256, RS256)
# How long a process uses a set that it has read. A token with an unknown key makes it read again.
FRESH_SECONDS = 10.0
# A new key is published this long before it signs, so that verifiers that cache the JWKS have it in time: longer than
# /jwks may be cached (`openid.metadata.views.PUBLIC`), and FRESH_SECONDS.
PUBLISH_AHEAD = timedelta(minutes=10)
# The longest lifetime of an access token that a tenant can set. A key verifies for this long after its last signature.
LONGEST_TOKEN = timedelta(seconds=max(LONGEST_ACCESS_TOKEN_SECONDS, settings.ACCESS_TOKEN_SECONDS))
MAKING_LOCK = 7_215_002
THUMBPRINT = re.compile(r"[A-Za-z0-9_-]{43}")
# The sets of the tenants that used them last are cached.
KEPT = 2048
# Anyone can send tokens with invented key ids: so many of one owner are looked up until its set is read again.
LOOKUPS = 16


# By tenant; None is the platform.
_sets: OrderedDict[UUID | None, KeySet] = OrderedDict()
_lock = Lock()
# One for each owner whose keys are being created.
_making: WeakValueDictionary[UUID | None, Lock] = WeakValueDictionary()


# --- reading ---------------------------------------------------------------------------------------------------------


def key_set(tenant_id: UUID | None = None, *, knowing: str | None = None) -> KeySet:
    """Return the valid keys of a tenant, or of the platform; read again when they are old or lack the key `knowing`.

    Another process may have rotated a moment ago, so a token with an unknown key id makes this process read again before
    the token is rejected. Raises UnknownTenant, TenantBusy, DataKeyLocked.
    """
    with _lock:
        cached = _sets.get(tenant_id)
        if cached is not None:
            _sets.move_to_end(tenant_id)
    current = cached if cached is not None and time.monotonic() - cached.read_at < FRESH_SECONDS else None
    if current and (knowing is None or knowing in current.verifiers or not _is_looked_up(knowing, current)):
        return current
    with _realm(tenant_id).entered(tenant_id, Purpose.INSPECT):
        # Invented key ids cost a look-up by primary key, not the whole set.
        if current and knowing and not _model(tenant_id).objects.filter(_is_valid(now()), pk=knowing).exists():
            current.unknown.add(knowing)
            return current
        fresh = _read(tenant_id, cached)
        # Keys that this transaction has made may still be rolled back.
        if not connections[_realm(tenant_id).alias].in_atomic_block:
            _remember(tenant_id, fresh)
    return fresh


def _is_looked_up(kid: str, current: KeySet) -> bool:
    return THUMBPRINT.fullmatch(kid) is not None and kid not in current.unknown and len(current.unknown) < LOOKUPS


def verifier(tenant_id: UUID | None, kid: str) -> Verifier | None:
    """Return the key that verifies a token with this key id, or None if its owner has no such key.

    The token is unverified: a tenant that does not exist, or whose database may not be read, gives None as well, unless this
    process has read its keys before.
    """
    try:
        return key_set(tenant_id, knowing=kid).verifiers.get(kid)
    except UnknownTenant:
        return None
    except (TenantBusy, TenantSuspended):
        with _lock:
            cached = _sets.get(tenant_id)
        return cached.verifiers.get(kid) if cached else None


def signer(tenant_id: UUID | None = None, algorithm: str = ES256) -> Signer:
    """Return the key that signs now. The first use by a tenant creates its keys.

    Raises UnknownTenant, TenantSuspended, TenantBusy, DataKeyLocked, SigningKeyNotPublished.
    """
    current = key_set(tenant_id)
    if algorithm not in current.signers and current.missing:
        current = _completed(tenant_id, current.missing)
    if algorithm not in current.signers:
        raise SigningKeyNotPublished(algorithm, signs_from=current.starts[algorithm])
    return current.signers[algorithm]


def complete_key_set(tenant_id: UUID | None = None) -> KeySet:
    """Return the valid keys, with one for each algorithm: verifiers cache what they get, so no key may be missing in it.

    While nothing can be written, keys that exist are returned without those that are missing.
    Raises UnknownTenant, TenantSuspended, TenantBusy, DataKeyLocked.
    """
    current = key_set(tenant_id)
    if not current.missing:
        return current
    try:
        return _completed(tenant_id, current.missing)
    except Unavailable:
        if current.jwks:
            return current
        raise


def is_known_complete(tenant_id: UUID | None) -> bool:
    """Return whether this process has seen a complete key set of the tenant. Costs no statement."""
    with _lock:
        known = _sets.get(tenant_id)
    return known is not None and not known.missing


def _completed(tenant_id: UUID | None, missing: Collection[str]) -> KeySet:
    """Return the set with the keys that are missing, which one thread of this process creates."""
    if connections[_realm(tenant_id).alias].in_atomic_block:
        # Another thread may wait for a lock of this transaction.
        return _create_missing(tenant_id, missing)
    with _lock:
        making = _making.setdefault(tenant_id, Lock())
    with making:
        current = key_set(tenant_id)
        return _create_missing(tenant_id, missing) if current.missing else current


def _create_missing(tenant_id: UUID | None, missing: Collection[str]) -> KeySet:
    # An RSA key takes long to generate: not while other processes wait for the lock.
    pairs = {algorithm: new_key_pair(algorithm) for algorithm in missing}
    alias = _realm(tenant_id).alias
    # Logout tokens of a suspended tenant are signed too.
    with _realm(tenant_id).entered(tenant_id, Purpose.SIGN_OUT):
        with transaction.atomic(using=alias):
            # Two processes at the first use must not create two keys.
            advisory_lock(alias, MAKING_LOCK)
            _make_missing(tenant_id, now(), pairs)
            fresh = _read(tenant_id, None)
        # In the caller's transaction the keys may still be rolled back, and with them what the caller signs now.
        transaction.on_commit(partial(_remember, tenant_id, fresh), using=alias)
    return fresh


def _make_missing(tenant_id: UUID | None, moment: datetime, pairs: Mapping[str, KeyPair]) -> None:
    valid = _valid(tenant_id, moment)
    current = {key.algorithm for key in valid if key.verifies_until is None}
    for algorithm in _algorithms(tenant_id):
        if algorithm in current:
            continue
        # Verifiers may have cached a set without the new key, unless this is the first set. If all keys of an algorithm were
        # withdrawn, as in a database that was restored, waiting would reject all sign-ins.
        signs = any(key.algorithm == algorithm for key in valid)
        withdrawn = not signs and _model(tenant_id).objects.filter(public_jwk__alg=algorithm).exists()
        waits = bool(valid) and not withdrawn
        signs_from = moment + PUBLISH_AHEAD if waits else moment
        make_key(tenant_id, algorithm, signs_from=signs_from, pair=pairs.get(algorithm))


def _algorithms(tenant_id: UUID | None) -> tuple[str, ...]:
    # The platform's keys sign access tokens of operators and admins only.
    return ALGORITHMS if tenant_id else (ES256,)


def forget(tenant_id: UUID | None = None) -> None:
    """Read the owner's keys again at the next use."""
    with _lock:
        _sets.pop(tenant_id, None)


def _remember(tenant_id: UUID | None, fresh: KeySet) -> None:
    with _lock:
        _sets[tenant_id] = fresh
        if len(_sets) > KEPT:
            _sets.popitem(last=False)


def _read(tenant_id: UUID | None, before: KeySet | None) -> KeySet:
    moment = now()
    valid = _valid(tenant_id, moment)
    signers: dict[str, Signer] = {}
    for algorithm in ALGORITHMS:
        signing = _signing(valid, algorithm, moment)
        if signing is not None:
            last = before.signers.get(algorithm) if before else None
            # Parsing an RSA key takes longer than all the rest.
            signers[algorithm] = last if last and last.kid == signing.kid else _unsealed_signer(tenant_id, signing)
    current = [key for key in valid if key.verifies_until is None]
    jwks = [key.public_jwk for key in valid]
    return KeySet(
        signers=signers,
        starts={key.algorithm: key.signs_from for key in reversed(current) if key.signs_from > moment},
        missing=frozenset(_algorithms(tenant_id)) - {key.algorithm for key in current},
        verifiers={key.kid: Verifier(key.algorithm, _public(key.public_jwk)) for key in valid},
        jwks=jwks,
        document=JsonDocument.of({"keys": jwks}),
        read_at=time.monotonic(),
    )


def _unsealed_signer(tenant_id: UUID | None, row: SigningKeyBase) -> Signer:
    raw = unseal(row.private_sealed, data_key=_realm(tenant_id).data_key(), context=_context(tenant_id, row.kid))
    return Signer(row.kid, cast(PrivateKey, serialization.load_der_private_key(raw, None)))


def unreadable_keys(tenant_id: UUID | None) -> list[str]:
    """Return the ids of the owner's valid keys that do not open with its data key. Call it where the owner is entered."""
    return [row.kid for row in _valid(tenant_id, now()) if not _is_readable(tenant_id, row)]


def _is_readable(tenant_id: UUID | None, row: SigningKeyBase) -> bool:
    try:
        unseal(row.private_sealed, data_key=_realm(tenant_id).data_key(), context=_context(tenant_id, row.kid))
    except SealBroken:
        return False
    return True


def _public(jwk: Jwk) -> PublicKey:
    loader = ECAlgorithm if jwk["kty"] == "EC" else RSAAlgorithm
    return cast(PublicKey, loader.from_jwk(jwk))


def _is_valid(moment: datetime) -> Q:
    return Q(verifies_until=None) | Q(verifies_until__gt=moment)


def _valid(tenant_id: UUID | None, moment: datetime) -> list[SigningKeyBase]:
    return list(_model(tenant_id).objects.filter(_is_valid(moment)).order_by("created_at", "kid"))


def _signing(valid: list[SigningKeyBase], algorithm: str, moment: datetime) -> SigningKeyBase | None:
    # The newest by creation, not by start: an immediate rotation overtakes a key that was published before it.
    ready = (key for key in reversed(valid) if key.algorithm == algorithm and key.signs_from <= moment)
    return next(ready, None)


# --- the owner's database --------------------------------------------------------------------------------------------


def _realm(tenant_id: UUID | None) -> Realm:
    """Return the realm whose database, data key and audit trail are those of the owner."""
    return END_USERS if tenant_id else ADMINS


def _model(tenant_id: UUID | None) -> type[SigningKeyBase]:
    return TenantSigningKey if tenant_id else SigningKey


def _context(tenant_id: UUID | None, kid: str) -> SealContext:
    table = _model(tenant_id)._meta.db_table
    return SealContext(tenant=str(tenant_id or "platform"), table=table, column="private_sealed", row=kid)


# --- creating, rotating, withdrawing ---------------------------------------------------------------------------------


def make_key(
    tenant_id: UUID | None, algorithm: str, *, signs_from: datetime, pair: KeyPair | None = None
) -> SigningKeyBase:
    """Create a key pair that signs from `signs_from` on; the private key is sealed before it is stored.

    Call it where the owner's database is entered.
    """
    kid, public_jwk, raw = pair or new_key_pair(algorithm)
    return _model(tenant_id).objects.create(
        kid=kid,
        public_jwk=public_jwk,
        private_sealed=seal(raw, data_key=_realm(tenant_id).data_key(), context=_context(tenant_id, kid)),
        signs_from=signs_from,
    )


def rotate_signing_keys(
    tenant_id: UUID | None = None, *, at_once: bool = False, by: Principal | None = None
) -> list[SigningKeyBase]:
    """Create the next key for each algorithm; earlier keys verify until their last tokens have expired.

    `at_once` skips the time in which verifiers that cache the JWKS fetch the new keys. It does not end the old keys;
    `withdraw_signing_key` does. Raises InsufficientAuthentication, UnknownTenant, TenantSuspended, TenantBusy.
    """
    require_assurance(Action.ROTATE_KEYS, by)
    model = _model(tenant_id)
    with _realm(tenant_id).entered(tenant_id, Purpose.WRITE):
        with transaction.atomic(using=_realm(tenant_id).alias):
            moment = now()
            # Before the first key nothing is cached.
            is_first = not _valid(tenant_id, moment)
            signs_from = moment if at_once or is_first else moment + PUBLISH_AHEAD
            made = [make_key(tenant_id, algorithm, signs_from=signs_from) for algorithm in _algorithms(tenant_id)]
            model.objects.exclude(pk__in=[key.pk for key in made]).filter(verifies_until=None).update(
                verifies_until=signs_from + LONGEST_TOKEN
            )
            for key in made:
                target, details = ("signing_key", key.kid), {"at_once": at_once}
                _realm(tenant_id).record("signing_key.rotated", target=target, details=details)
        forget(tenant_id)
    return made


def withdraw_signing_key(tenant_id: UUID | None = None, *, kid: str, by: Principal | None = None) -> bool:
    """Reject a key's tokens from now on, for a leaked private key. Return False if no such key is valid.

    Other processes follow within FRESH_SECONDS. If it was the signing key, another one takes over at once.
    Raises InsufficientAuthentication, UnknownTenant, TenantSuspended, TenantBusy.
    """
    require_assurance(Action.ROTATE_KEYS, by)
    model = _model(tenant_id)
    with _realm(tenant_id).entered(tenant_id, Purpose.WRITE):
        with transaction.atomic(using=_realm(tenant_id).alias):
            moment = now()
            key = model.objects.select_for_update().filter(_is_valid(moment), pk=kid).first()
            if key is not None:
                key.verifies_until = moment
                key.save(update_fields=["verifies_until"])
                # Retired keys do not sign again: their tokens would outlive them.
                left = model.objects.filter(verifies_until=None, signs_from__lte=moment)
                if not any(other.algorithm == key.algorithm for other in left):
                    make_key(tenant_id, key.algorithm, signs_from=moment)
                _realm(tenant_id).record("signing_key.withdrawn", target=("signing_key", kid))
        forget(tenant_id)
    return key is not None


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A valid key and its state: `next`, `signing` or `verifying`."""

    kid: str
    algorithm: str
    state: str
    created_at: datetime
    signs_from: datetime
    verifies_until: datetime | None


def signing_key_status(tenant_id: UUID | None = None) -> list[KeyStatus]:
    """Return the keys that are valid now, oldest first. Raises UnknownTenant, TenantBusy."""
    moment = now()
    with _realm(tenant_id).entered(tenant_id, Purpose.INSPECT):
        valid = _valid(tenant_id, moment)
    signing = [_signing(valid, algorithm, moment) for algorithm in ALGORITHMS]
    return [
        KeyStatus(
            key.kid,
            key.algorithm,
            "signing" if key in signing else ("next" if key.signs_from > moment else "verifying"),
            key.created_at,
            key.signs_from,
            key.verifies_until,
        )
        for key in valid
    ]
