"""Bearer secrets: strength, hash and comparison."""

import base64
import hashlib
import re

import pytest

from identity_platform.crypto import constant_time_equal, hash_token, new_token


def test_token_has_256_bits_in_base64url() -> None:
    token = new_token()

    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", token)
    assert len(base64.urlsafe_b64decode(token + "=")) == 32


def test_token_prefix_precedes_a_full_token() -> None:
    assert re.fullmatch(r"inv_[A-Za-z0-9_-]{43}", new_token("inv_"))


def test_tokens_do_not_repeat() -> None:
    assert len({new_token() for _ in range(5000)}) == 5000


def test_hash_token_is_sha_256_of_the_whole_token() -> None:
    token = new_token("inv_")

    assert hash_token(token) == hashlib.sha256(token.encode()).digest()
    assert hash_token(token) != hash_token(token + "=")


def test_hash_token_accepts_lone_surrogates() -> None:
    assert len(hash_token("\ud800")) == 32


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("abc", "abc", True),
        (b"abc", "abc", True),
        ("é", "é", True),
        ("abc", "abd", False),
        ("abc", "abcd", False),
        ("", "a", False),
        ("\ud800", "é", False),
    ],
)
def test_constant_time_equal_compares_text_and_bytes(a: str | bytes, b: str | bytes, equal: bool) -> None:
    assert constant_time_equal(a, b) is equal
