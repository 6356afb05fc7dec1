"""What keyboards and clipboards add to addresses, phone numbers and codes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_platform.api.email_addresses import AddressInvalid, email_address, key_of_spelling
from identity_platform.api.typed_text import compact, six_digits, trimmed
from mfa.sms.codes import typed_number
from mfa.totp import backup_codes
from openid.device import codes as device_codes

INVISIBLE = st.text(st.characters(categories=("Cf", "Zs")), max_size=3)
DASHES = st.sampled_from("-\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d\u30fc")


@st.composite
def foreign_digits(draw: st.DrawFn, digits: str) -> str:
    """Write digits in any script, with invisible characters around each."""
    zeros = "0\u0660\u06f0\u0966\u0e50\uff10\U0001d7ce"
    written = ""
    for digit in digits:
        zero = draw(st.sampled_from(zeros))
        written += draw(INVISIBLE) + chr(ord(zero) + int(digit)) + draw(INVISIBLE)
    return written


@given(before=INVISIBLE, after=INVISIBLE)
def test_address_ignores_invisible_characters_around_it(before: str, after: str) -> None:
    assert email_address(f"{before}Ann@example.com{after}") == "Ann@example.com"
    assert key_of_spelling(f"{before}Ann@example.com{after}") == "ann@example.com"


@pytest.mark.parametrize("inside", ["\u200b", "\u00ad", "\u202e", "\ufeff", " ", "\u00a0", "\n", "\r\n", "\0"])
def test_address_rejects_invisible_characters_inside(inside: str) -> None:
    for text in (f"an{inside}n@example.com", f"ann@exam{inside}ple.com", f"ann{inside}@example.com"):
        with pytest.raises(AddressInvalid):
            email_address(text)


@pytest.mark.parametrize("control", ["\n", "\r\n", "\t", "\0", "\x1f", "\u2028", "\x85"])
def test_address_rejects_control_characters_around_it(control: str) -> None:
    for text in (f"{control}ann@example.com", f"ann@example.com{control}", f"ann@example.com \u200b{control}"):
        with pytest.raises(AddressInvalid):
            email_address(text)


@given(st.text(max_size=12))
def test_trimmed_removes_only_invisible_characters_at_the_ends(text: str) -> None:
    result = trimmed(text)
    assert result in text
    assert trimmed(result) == result
    left, _, right = text.partition(result) if result else (text, "", "")
    assert {unicodedata.category(character) for character in left + right} <= {"Cf", "Zs"}


@given(st.data())
def test_six_digits_of_any_script_are_the_code(data: st.DataObject) -> None:
    code = data.draw(st.from_regex("[0-9]{6}", fullmatch=True))
    assert six_digits(data.draw(foreign_digits(code))) == code
    dash = data.draw(DASHES)
    assert six_digits(f"{code[:3]} {dash} {code[3:]}") == code


@pytest.mark.parametrize(
    "text", ["", "12345", "1234567", "12345a", "\u00b2" * 6, "\u2160" * 6, "123456\n", "+12345", "1_3456"]
)
def test_six_digits_rejects_anything_else(text: str) -> None:
    assert six_digits(text) is None


@given(st.data())
def test_phone_number_of_any_script_is_e164(data: st.DataObject) -> None:
    plus = data.draw(st.sampled_from("+\uff0b"))
    digits = data.draw(foreign_digits("447400123456"))
    assert typed_number(plus + digits) == "+447400123456"
    dash = data.draw(DASHES)
    assert typed_number(f"\u202a{plus}44 (7400){dash}123.456\u202c") == "+447400123456"


@given(st.data())
def test_backup_code_ignores_dashes_blanks_case_and_script(data: st.DataObject) -> None:
    dash = data.draw(DASHES)
    groups = ["7k2m", "9XQR", "4tzv", "8bnd"]
    written = dash.join(data.draw(INVISIBLE) + group + data.draw(INVISIBLE) for group in groups)
    assert backup_codes.normalised(written) == "7K2M9XQR4TZV8BND"
    assert backup_codes.normalised(written.replace("7", "\u06f7").replace("9", "\uff19")) == "7K2M9XQR4TZV8BND"


@pytest.mark.parametrize(
    "text", ["", "7k2m-9xqr-4tzv", "7k2m-9xqr-4tzv-8bnd\n", "7k2m-9xqr-4tzv-8b\u00fcd", "7\u212a2m-9xqr-4tzv-8bnd"]
)
def test_backup_code_rejects_other_letters_and_lengths(text: str) -> None:
    assert backup_codes.normalised(text) is None


@given(st.data())
def test_device_code_ignores_dashes_blanks_and_case(data: st.DataObject) -> None:
    dash, blank = data.draw(DASHES), data.draw(INVISIBLE)
    assert device_codes.normalized(f"{blank}wdjb{blank}{dash}MJHT{blank}") == "WDJBMJHT"


def test_device_code_of_full_width_letters_is_read() -> None:
    assert device_codes.normalized("\uff37\uff24\uff2a\uff22\uff0d\uff2d\uff2a\uff28\uff34") == "WDJBMJHT"


@given(st.text(max_size=12))
def test_compact_is_stable_and_without_foreign_digits(text: str) -> None:
    result = compact(text)
    assert compact(result) == result
    assert not any(unicodedata.category(character) in ("Cf", "Zs") for character in result)
    assert all(character.isascii() for character in result if unicodedata.category(character) in ("Nd", "Pd"))
