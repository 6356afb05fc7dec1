"""The key ring: what it reads and rejects, and rotation."""

import base64
import hashlib
from collections.abc import Iterator

import pytest
from django.core.exceptions import ImproperlyConfigured
from pytest_django.fixtures import Settings

from identity_platform.crypto import (
    KeyRing,
    RingKeyMissing,
    SealBroken,
    WrappedKey,
    key_ring,
    new_data_key,
    reload_key_ring,
    rewrap,
    unwrap_data_key,
    wrap_data_key,
)

TENANT = "0a0a0a0a-0000-4000-8000-000000000001"
OTHER_TENANT = "0b0b0b0b-0000-4000-8000-000000000002"


def entry(key_id: str, seed: str = "") -> str:
    """Return a ring entry that is equal in every process: pytest-xdist compares parametrized test names."""
    return f"{key_id}:{encoded(hashlib.sha256((seed or key_id).encode()).digest())}"


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()


OLD, NEW = entry("k1"), entry("k2")


@pytest.fixture
def configured(settings: Settings) -> Iterator[Settings]:
    """Settings whose ring a test may change. The original ring is restored afterwards."""
    before = settings.ENCRYPTION_KEYS
    yield settings
    settings.ENCRYPTION_KEYS = before
    reload_key_ring()


def test_unwrap_opens_for_the_owner() -> None:
    ring = KeyRing.parse(OLD)
    key = new_data_key()

    wrapped = ring.wrap(key, owner=TENANT)

    assert wrapped.key_id == "k1"
    assert key not in wrapped.blob
    assert ring.unwrap(*wrapped, owner=TENANT) == key


@pytest.mark.parametrize("owner", [OTHER_TENANT, "platform", TENANT.upper()])
def test_unwrap_fails_for_another_owner(owner: str) -> None:
    ring = KeyRing.parse(OLD)
    wrapped = ring.wrap(new_data_key(), owner=TENANT)

    with pytest.raises(SealBroken):
        ring.unwrap(*wrapped, owner=owner)


def test_unwrap_authenticates_every_byte() -> None:
    ring = KeyRing.parse(OLD)
    key_id, blob = ring.wrap(new_data_key(), owner=TENANT)

    for position in range(len(blob)):
        altered = bytearray(blob)
        altered[position] ^= 1
        with pytest.raises(SealBroken):
            ring.unwrap(key_id, altered, owner=TENANT)


@pytest.mark.parametrize("cut", [0, 1, 13, 28, 60])
def test_unwrap_rejects_truncated_or_lengthened_keys(cut: int) -> None:
    ring = KeyRing.parse(OLD)
    key_id, blob = ring.wrap(new_data_key(), owner=TENANT)

    for wrong in (blob[:cut], blob + b"\0"):
        with pytest.raises(SealBroken):
            ring.unwrap(key_id, wrong, owner=TENANT)


def test_unwrap_binds_the_key_id() -> None:
    material = OLD.partition(":")[2]
    wrapped = KeyRing.parse(f"k1:{material}").wrap(new_data_key(), owner=TENANT)

    with pytest.raises(SealBroken):
        KeyRing.parse(f"k9:{material}").unwrap("k9", wrapped.blob, owner=TENANT)


def test_rotation_wraps_with_new_key_and_opens_old() -> None:
    key = new_data_key()
    wrapped = KeyRing.parse(OLD).wrap(key, owner=TENANT)

    ring = KeyRing.parse(f"{NEW},{OLD}")

    assert ring.ids == ("k2", "k1")
    assert ring.unwrap(*wrapped, owner=TENANT) == key
    assert ring.wrap(key, owner=TENANT).key_id == "k2"


def test_unwrap_names_a_key_removed_too_early() -> None:
    wrapped = KeyRing.parse(OLD).wrap(new_data_key(), owner=TENANT)

    with pytest.raises(RingKeyMissing, match=r"'k1', but ENCRYPTION_KEYS holds only k2\. Put that key back"):
        KeyRing.parse(NEW).unwrap(*wrapped, owner=TENANT)


def test_rotation_of_the_configured_ring_only_rewraps(configured: Settings) -> None:
    configured.ENCRYPTION_KEYS = OLD
    reload_key_ring()
    key = new_data_key()
    before = wrap_data_key(key, owner="platform")

    configured.ENCRYPTION_KEYS = f"{NEW},{OLD}"
    reload_key_ring()
    after = rewrap(*before, owner="platform")
    configured.ENCRYPTION_KEYS = NEW
    reload_key_ring()

    assert after.key_id == "k2"
    assert unwrap_data_key(*after, owner="platform") == key


def test_rewrap_is_idempotent(configured: Settings) -> None:
    configured.ENCRYPTION_KEYS = OLD
    reload_key_ring()
    wrapped = wrap_data_key(new_data_key(), owner=TENANT)

    assert rewrap(wrapped.key_id, memoryview(wrapped.blob), owner=TENANT) == wrapped


def test_rewrap_rejects_a_damaged_current_key(configured: Settings) -> None:
    configured.ENCRYPTION_KEYS = OLD
    reload_key_ring()
    key_id, blob = wrap_data_key(new_data_key(), owner=TENANT)

    with pytest.raises(SealBroken):
        rewrap(*WrappedKey(key_id, blob[:-1] + bytes([blob[-1] ^ 1])), owner=TENANT)


def test_invalid_ring_leaves_the_old_one_in_use(configured: Settings) -> None:
    configured.ENCRYPTION_KEYS = OLD
    ring = reload_key_ring()

    configured.ENCRYPTION_KEYS = "nonsense"
    with pytest.raises(ImproperlyConfigured):
        reload_key_ring()

    assert key_ring() is ring


def test_ring_is_parsed_once(configured: Settings) -> None:
    configured.ENCRYPTION_KEYS = f"{NEW},{OLD}"
    reload_key_ring()

    assert key_ring() is key_ring()
    assert key_ring().primary_id == "k2"


def test_ring_allows_whitespace_around_entries() -> None:
    assert KeyRing.parse(f" {NEW} ,\n{OLD}\n").ids == ("k2", "k1")


SHORT, LONG, ZEROS = encoded(bytes(range(16))), encoded(bytes(range(33))), encoded(bytes(32))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        (OLD.partition(":")[2], "entry 1: write it as id:base64"),
        (f"{OLD},", "entry 2: write it as id:base64"),
        (f",{OLD}", "entry 1: write it as id:base64"),
        (f":{OLD.partition(':')[2]}", "entry 1: write it as id:base64"),
        (f"k 1:{OLD.partition(':')[2]}", "entry 1: write it as id:base64"),
        (f"{'k' * 65}:{OLD.partition(':')[2]}", "entry 1: write it as id:base64"),
        (f"kлюч:{OLD.partition(':')[2]}", "entry 1: write it as id:base64"),
        ("k1:", "0 bytes after decoding"),
        ("k1:***", "not standard base64"),
        ("k1:é", "not standard base64"),
        (OLD.rstrip("="), "not standard base64"),
        (f"k1:{SHORT}", "16 bytes after decoding"),
        (f"k1:{LONG}", "33 bytes after decoding"),
        (f"k1:{ZEROS}", "not a random key"),
        (f"{OLD},{entry('k1', 'another')}", "the id 'k1' twice"),
        (f"{OLD},k2:{OLD.partition(':')[2]}", "'k2': the same key has another id too"),
    ],
)
def test_ring_error_gives_advice_without_the_key(text: str, advice: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=advice) as raised:
        KeyRing.parse(text)

    assert OLD.partition(":")[2] not in str(raised.value)
    assert raised.value.__cause__ is None


def test_ring_repr_shows_ids_only() -> None:
    assert repr(KeyRing.parse(f"{NEW},{OLD}")) == "<KeyRing k2, k1>"


def test_wrap_rejects_wrong_key_size_and_empty_owner() -> None:
    ring = KeyRing.parse(OLD)

    with pytest.raises(ValueError, match="32 bytes"):
        ring.wrap(b"short", owner=TENANT)
    with pytest.raises(ValueError, match="owner"):
        ring.wrap(new_data_key(), owner="")


def test_unwrap_opens_keys_of_an_earlier_release() -> None:
    ring = KeyRing.parse("k1:" + base64.b64encode(bytes(range(32))).decode())
    blob = base64.b64decode("AUyo9Vbj/v4Tz2ZIbapyVsE5MI1OK6K5uBNEKfyzHVtTW2Ubr7r9/snJRYCiCnFLaimQjmsFnyXAwZLGdA==")

    assert ring.unwrap("k1", blob, owner="platform") == bytes(range(100, 132))
