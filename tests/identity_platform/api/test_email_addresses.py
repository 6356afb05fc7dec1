"""E-mail addresses: normalisation, and rejection of addresses that imitate others."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_platform.api.email_addresses import (
    AddressInvalid,
    email_address,
    email_key,
    search_key,
    shown_address,
    shown_domain,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("ann@example.com", "ann@example.com"),
        ("Ann.Lee+tag@EXAMPLE.Com", "Ann.Lee+tag@example.com"),
        ("o'neil!#$%&*/=?^_`{|}~-@example.com", "o'neil!#$%&*/=?^_`{|}~-@example.com"),
        ("a@b-c.example", "a@b-c.example"),
        ("a@M\u00dcNCHEN.example", "a@xn--mnchen-3ya.example"),
        ("a@XN--MNCHEN-3YA.example", "a@xn--mnchen-3ya.example"),
        ("a@mu\u0308nchen.example", "a@xn--mnchen-3ya.example"),
        ("a@stra\u00dfe.example", "a@xn--strae-oqa.example"),
        ("a@\u4f8b\u3048\u3002\u30c6\u30b9\u30c8", "a@xn--r8jz45g.xn--zckzah"),
        (f"{'l' * 64}@example.com", f"{'l' * 64}@example.com"),
        (f"a@{'d' * 63}.example", f"a@{'d' * 63}.example"),
        ("1@1.example", "1@1.example"),
        (" ann@example.com", "ann@example.com"),
        ("\u2066ann@example.com\u2069\u00a0", "ann@example.com"),
    ],
)
def test_email_address_normalises_the_domain_only(text: str, address: str) -> None:
    assert email_address(text) == address
    assert email_address(address) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ann",
        "@example.com",
        "ann@",
        "ann@@example.com",
        "ann@lee@example.com",
        "ann @example.com",
        "ann@example.com\n",
        "ann\r\nBcc: x@example.com",
        "ann\0@example.com",
        ".ann@example.com",
        "ann.@example.com",
        "a..b@example.com",
        '"ann lee"@example.com',
        "ann(comment)@example.com",
        "Ann <ann@example.com>",
        "ann,lee@example.com",
        "j\u00f6rg@example.com",
        "adm\u0131n@example.com",
        "bo\u017fs@example.com",
        "mar\u212a@example.com",
        "\uff41nn@example.com",
        "ann\u200b@example.com",
        "ann@localhost",
        "ann@127.0.0.1",
        "ann@[127.0.0.1]",
        "ann@example.123",
        "ann@example.com.",
        "ann@.example.com",
        "ann@example..com",
        "ann@-example.com",
        "ann@example-.com",
        "ann@exa_mple.com",
        "ann@exa mple.com",
        "ann@exam%70le.com",
        f"{'l' * 65}@example.com",
        f"a@{'d' * 64}.example",
        f"a@{'.'.join(['d' * 61] * 4)}.example",
        f"{'l' * 64}@{'.'.join(['d' * 60] * 3)}.example",
        # These fold to plain ASCII domains.
        "ann@\u212aelvin.example",
        "ann@bo\u017fs.example",
        "ann@\uff45xample.com",
        "ann@exam\u00adple.com",
        "ann@example\u2024com",
        "ann@e\u2100ample.com",
        "ann@xn--example.com",
        "ann@xn--a.example",
        "ann@xn--.example",
        "ann@\u2603.\ud800",
        "ann@" + "\u00e4" * 5000 + ".example",
    ],
)
def test_email_address_rejects_odd_and_lookalike_addresses(text: str) -> None:
    with pytest.raises(AddressInvalid):
        email_address(text)


def test_email_key_ignores_case_only() -> None:
    assert email_key("Ann.Lee@example.com") == email_key("ANN.LEE@example.com") == "ann.lee@example.com"
    assert email_key("annlee@example.com") != email_key("ann.lee@example.com")


@pytest.mark.parametrize("letter", ["\u0131", "\u0130", "\u017f", "\u212a"])
def test_email_key_rejects_letters_that_fold_to_ascii(letter: str) -> None:
    with pytest.raises(AddressInvalid):
        email_key(f"{letter}@example.com")


@given(local=st.text(min_size=1, max_size=6), domain=st.text(min_size=1, max_size=12))
def test_equal_email_keys_differ_in_case_only(local: str, domain: str) -> None:
    try:
        address = email_address(f"{local}@{domain}.example")
    except AddressInvalid:
        return
    assert address.isascii()
    assert email_address(address) == address
    assert email_key(address) == unicodedata.normalize("NFKC", address).casefold() == address.lower()


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("Ann@M\u00fcnchen.example", "ann@xn--mnchen-3ya.example"),
        ("ann@xn--mnchen-3ya.EXAMPLE", "ann@xn--mnchen-3ya.example"),
        ("m\u00fcnchen", "xn--mnchen-3ya"),
        ("\u200b@mu\u0308nchen.", "@xn--mnchen-3ya."),
        ("ann", "ann"),
        ("a%_b@", "a%_b@"),
        ("m\u00fc ller", "m\u00fc ller"),
        ("\u2603" * 80, "\u2603" * 80),
    ],
)
def test_search_key_has_domains_as_stored(words: str, key: str) -> None:
    assert search_key(words) == key
    assert search_key(key) == key


@pytest.mark.parametrize("stored", ["ann@xn--mnchen-3ya.example", "ann@plain.example"])
def test_shown_address_is_stored_the_same(stored: str) -> None:
    assert email_address(shown_address(stored)) == stored


def test_shown_domain_is_in_unicode_where_idna_allows() -> None:
    assert shown_domain("mail.xn--mnchen-3ya.example") == "mail.münchen.example"
    assert shown_domain("xn--a.xn--mnchen-3ya") == "xn--a.münchen"
