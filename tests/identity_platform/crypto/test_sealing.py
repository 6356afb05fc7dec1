"""Seals open in their place and nowhere else; derived keys and digests are apart by purpose."""

import base64
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_platform.crypto import (
    SealBroken,
    SealContext,
    derive_key,
    keyed_digest,
    new_data_key,
    seal,
    unseal,
)

KEY = bytes(range(32))
PLACE = SealContext(tenant="t-1", table="totp_device", column="secret", row="17")
words = st.text("ab", min_size=1, max_size=3)


@given(plaintext=st.binary(max_size=300))
def test_a_seal_opens_in_its_place(plaintext: bytes) -> None:
    sealed = seal(plaintext, data_key=KEY, context=PLACE)

    assert unseal(sealed, data_key=KEY, context=PLACE) == plaintext
    assert unseal(memoryview(sealed), data_key=KEY, context=PLACE) == plaintext
    assert len(sealed) == len(plaintext) + 29


@pytest.mark.parametrize("part", ["tenant", "table", "column", "row"])
def test_a_seal_moved_to_another_place_does_not_open(part: str) -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=PLACE)
    elsewhere = dataclasses.replace(PLACE, **{part: getattr(PLACE, part) + "0"})

    with pytest.raises(SealBroken, match="does not open in its place"):
        unseal(sealed, data_key=KEY, context=elsewhere)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (SealContext("a", "bc", "d", "e"), SealContext("ab", "c", "d", "e")),
        (SealContext("a", "b", "cd", "e"), SealContext("a", "b", "c", "de")),
        (SealContext("a", "b", "c", "d"), SealContext("b", "a", "c", "d")),
        (SealContext("a", "b\0\0\0\1c", "d", "e"), SealContext("a", "b", "c\0\0\0\1d", "e")),
    ],
)
def test_places_that_read_alike_are_different_places(one: SealContext, other: SealContext) -> None:
    sealed = seal(b"secret", data_key=KEY, context=one)

    with pytest.raises(SealBroken):
        unseal(sealed, data_key=KEY, context=other)


@given(one=st.tuples(words, words, words, words), other=st.tuples(words, words, words, words))
def test_no_two_places_share_a_seal(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    sealed = seal(b"secret", data_key=KEY, context=SealContext(*one))

    if one == other:
        assert unseal(sealed, data_key=KEY, context=SealContext(*other)) == b"secret"
    else:
        with pytest.raises(SealBroken):
            unseal(sealed, data_key=KEY, context=SealContext(*other))


def test_every_bit_of_a_seal_is_authenticated() -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=PLACE)

    for position in range(len(sealed)):
        for bit in range(8):
            altered = bytearray(sealed)
            altered[position] ^= 1 << bit
            with pytest.raises(SealBroken):
                unseal(altered, data_key=KEY, context=PLACE)


def test_every_truncation_of_a_seal_is_refused() -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=PLACE)

    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            unseal(sealed[:length], data_key=KEY, context=PLACE)


def test_a_seal_does_not_open_under_another_tenants_data_key() -> None:
    sealed = seal(b"secret", data_key=new_data_key(), context=PLACE)

    with pytest.raises(SealBroken):
        unseal(sealed, data_key=new_data_key(), context=PLACE)


def test_a_broken_seal_tells_its_column_and_no_bytes() -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=PLACE)

    with pytest.raises(SealBroken) as broken:
        unseal(sealed[:-1] + b"\0", data_key=KEY, context=PLACE)

    assert str(broken.value) == "A seal in totp_device.secret does not open in its place."
    assert broken.value.__cause__ is None


def test_a_nonce_is_never_used_twice() -> None:
    sealed = [seal(b"same", data_key=KEY, context=PLACE) for _ in range(5000)]

    assert len({blob[1:13] for blob in sealed}) == 5000
    assert len({blob[13:] for blob in sealed}) == 5000


@pytest.mark.parametrize("part", ["tenant", "table", "column", "row"])
def test_a_place_with_an_empty_part_is_a_bug_and_raises(part: str) -> None:
    with pytest.raises(ValueError, match="tenant, table, column and row"):
        dataclasses.replace(PLACE, **{part: ""})


def test_keys_of_different_purposes_and_data_keys_differ() -> None:
    derived = {derive_key(key, purpose) for key in (KEY, bytes(32)) for purpose in ("a", "b", "seal", "AES-256-GCM")}

    assert len(derived) == 8
    assert {len(key) for key in derived} == {32}
    assert derive_key(KEY, "a") == derive_key(KEY, "a")


def test_a_derived_key_is_not_the_one_that_seals() -> None:
    sealed = seal(b"secret", data_key=KEY, context=PLACE)

    for purpose in ("seal", "AES-256-GCM", "key", "digest"):
        with pytest.raises(SealBroken):
            unseal(sealed, data_key=derive_key(KEY, purpose), context=PLACE)


def test_digests_differ_by_value_key_and_purpose() -> None:
    digest = keyed_digest("abcd-efgh", key=KEY, purpose="backup code")

    assert digest == keyed_digest(b"abcd-efgh", key=KEY, purpose="backup code")
    assert len(digest) == 32
    assert digest != keyed_digest("abcd-efgi", key=KEY, purpose="backup code")
    assert digest != keyed_digest("abcd-efgh", key=KEY, purpose="sms code")
    assert digest != keyed_digest("abcd-efgh", key=bytes(32), purpose="backup code")


@pytest.mark.parametrize("key", [b"", b"short", bytes(33)])
def test_a_data_key_of_the_wrong_size_is_a_bug_and_raises(key: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        seal(b"", data_key=key, context=PLACE)
    with pytest.raises(ValueError, match="32 bytes"):
        derive_key(key, "purpose")
    with pytest.raises(ValueError, match="32 bytes"):
        keyed_digest("", key=key, purpose="purpose")


def test_a_derived_key_needs_a_purpose() -> None:
    with pytest.raises(ValueError, match="purpose"):
        derive_key(KEY, "")


def test_what_an_earlier_release_sealed_and_digested_still_fits() -> None:
    blob = base64.b64decode("AaAI7LlsjSYP2vcyvGnwhHHUduigUXVK+/eeURs94p+TwIvqqe5IDyQNpH+z")

    assert unseal(blob, data_key=KEY, context=PLACE) == b"JBSWY3DPEHPK3PXP"
    assert derive_key(KEY, "purpose").hex() == "6d8269ef3c506071a765a6f56df90967769d0c5173e7cbcc5fc46ec58e5e3b71"
    assert (
        keyed_digest("abcd", key=KEY, purpose="backup code").hex()
        == "073feca91036f12f75e361449f9ecf349683036b0e06331ee1808675e1d5c4d5"
    )
