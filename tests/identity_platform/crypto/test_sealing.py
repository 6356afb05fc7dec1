"""Seals open in their context only; derived keys and digests differ by purpose."""

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
CONTEXT = SealContext(tenant="t-1", table="totp_device", column="secret", row="17")
words = st.text("ab", min_size=1, max_size=3)


@given(plaintext=st.binary(max_size=300))
def test_unseal_opens_in_its_context(plaintext: bytes) -> None:
    sealed = seal(plaintext, data_key=KEY, context=CONTEXT)

    assert unseal(sealed, data_key=KEY, context=CONTEXT) == plaintext
    assert unseal(memoryview(sealed), data_key=KEY, context=CONTEXT) == plaintext
    assert len(sealed) == len(plaintext) + 29


@pytest.mark.parametrize("part", ["tenant", "table", "column", "row"])
def test_unseal_rejects_another_context(part: str) -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=CONTEXT)
    elsewhere = dataclasses.replace(CONTEXT, **{part: getattr(CONTEXT, part) + "0"})

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
def test_unseal_distinguishes_similar_contexts(one: SealContext, other: SealContext) -> None:
    sealed = seal(b"secret", data_key=KEY, context=one)

    with pytest.raises(SealBroken):
        unseal(sealed, data_key=KEY, context=other)


@given(one=st.tuples(words, words, words, words), other=st.tuples(words, words, words, words))
def test_unseal_accepts_no_two_contexts(one: tuple[str, str, str, str], other: tuple[str, str, str, str]) -> None:
    sealed = seal(b"secret", data_key=KEY, context=SealContext(*one))

    if one == other:
        assert unseal(sealed, data_key=KEY, context=SealContext(*other)) == b"secret"
    else:
        with pytest.raises(SealBroken):
            unseal(sealed, data_key=KEY, context=SealContext(*other))


def test_unseal_authenticates_every_bit() -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=CONTEXT)

    for position in range(len(sealed)):
        for bit in range(8):
            altered = bytearray(sealed)
            altered[position] ^= 1 << bit
            with pytest.raises(SealBroken):
                unseal(altered, data_key=KEY, context=CONTEXT)


def test_unseal_rejects_every_truncation() -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=CONTEXT)

    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            unseal(sealed[:length], data_key=KEY, context=CONTEXT)


def test_unseal_rejects_the_key_of_another_tenant() -> None:
    sealed = seal(b"secret", data_key=new_data_key(), context=CONTEXT)

    with pytest.raises(SealBroken):
        unseal(sealed, data_key=new_data_key(), context=CONTEXT)


def test_unseal_error_names_the_column_without_bytes() -> None:
    sealed = seal(b"JBSWY3DPEHPK3PXP", data_key=KEY, context=CONTEXT)

    with pytest.raises(SealBroken) as broken:
        unseal(sealed[:-1] + b"\0", data_key=KEY, context=CONTEXT)

    assert str(broken.value) == "A seal in totp_device.secret does not open in its place."
    assert broken.value.__cause__ is None


def test_seal_never_repeats_a_nonce() -> None:
    sealed = [seal(b"same", data_key=KEY, context=CONTEXT) for _ in range(5000)]

    assert len({blob[1:13] for blob in sealed}) == 5000
    assert len({blob[13:] for blob in sealed}) == 5000


@pytest.mark.parametrize("part", ["tenant", "table", "column", "row"])
def test_context_with_an_empty_part_raises(part: str) -> None:
    with pytest.raises(ValueError, match="tenant, table, column and row"):
        dataclasses.replace(CONTEXT, **{part: ""})


def test_derived_keys_differ_by_purpose_and_data_key() -> None:
    derived = {derive_key(key, purpose) for key in (KEY, bytes(32)) for purpose in ("a", "b", "seal", "AES-256-GCM")}

    assert len(derived) == 8
    assert {len(key) for key in derived} == {32}
    assert derive_key(KEY, "a") == derive_key(KEY, "a")


def test_derived_key_opens_no_seal() -> None:
    sealed = seal(b"secret", data_key=KEY, context=CONTEXT)

    for purpose in ("seal", "AES-256-GCM", "key", "digest"):
        with pytest.raises(SealBroken):
            unseal(sealed, data_key=derive_key(KEY, purpose), context=CONTEXT)


def test_digests_differ_by_value_key_and_purpose() -> None:
    digest = keyed_digest("abcd-efgh", key=KEY, purpose="backup code")

    assert digest == keyed_digest(b"abcd-efgh", key=KEY, purpose="backup code")
    assert len(digest) == 32
    assert digest != keyed_digest("abcd-efgi", key=KEY, purpose="backup code")
    assert digest != keyed_digest("abcd-efgh", key=KEY, purpose="sms code")
    assert digest != keyed_digest("abcd-efgh", key=bytes(32), purpose="backup code")


@pytest.mark.parametrize("key", [b"", b"short", bytes(33)])
def test_data_key_of_wrong_size_raises(key: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        seal(b"", data_key=key, context=CONTEXT)
    with pytest.raises(ValueError, match="32 bytes"):
        derive_key(key, "purpose")
    with pytest.raises(ValueError, match="32 bytes"):
        keyed_digest("", key=key, purpose="purpose")


def test_derive_key_requires_a_purpose() -> None:
    with pytest.raises(ValueError, match="purpose"):
        derive_key(KEY, "")


def test_seals_and_digests_of_an_earlier_release_match() -> None:
    blob = base64.b64decode("AaAI7LlsjSYP2vcyvGnwhHHUduigUXVK+/eeURs94p+TwIvqqe5IDyQNpH+z")

    assert unseal(blob, data_key=KEY, context=CONTEXT) == b"JBSWY3DPEHPK3PXP"
    assert derive_key(KEY, "purpose").hex() == "6d8269ef3c506071a765a6f56df90967769d0c5173e7cbcc5fc46ec58e5e3b71"
    assert (
        keyed_digest("abcd", key=KEY, purpose="backup code").hex()
        == "073feca91036f12f75e361449f9ecf349683036b0e06331ee1808675e1d5c4d5"
    )
