"""Key ring, envelope encryption, seals and tokens; knows no table and no request."""

from identity_platform.crypto.keyring import (
    KeyRing,
    RingKeyMissing,
    WrappedKey,
    key_ring,
    new_data_key,
    reload_key_ring,
    rewrap,
    unwrap_data_key,
    wrap_data_key,
)
from identity_platform.crypto.sealing import SealBroken, SealContext, derive_key, keyed_digest, seal, unseal
from identity_platform.crypto.streams import SealingWriter, unseal_file
from identity_platform.crypto.tokens import constant_time_equal, hash_token, new_token

__all__ = [
    "KeyRing",
    "RingKeyMissing",
    "SealBroken",
    "SealContext",
    "SealingWriter",
    "WrappedKey",
    "constant_time_equal",
    "derive_key",
    "hash_token",
    "key_ring",
    "keyed_digest",
    "new_data_key",
    "new_token",
    "reload_key_ring",
    "rewrap",
    "seal",
    "unseal",
    "unseal_file",
    "unwrap_data_key",
    "wrap_data_key",
]
