"""Codes, pictures and backup codes, without a database."""

import io
from urllib.parse import parse_qs, unquote, urlsplit

import cv2
import numpy
import pyotp
import pytest
import zxingcpp
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from mfa.totp import backup_codes, engine

RFC_SECRET = b"12345678901234567890"
# RFC 6238 appendix B, SHA-1; six digits are the last six of eight.
RFC_VECTORS = [
    (59, "287082"),
    (1111111109, "081804"),
    (1111111111, "050471"),
    (1234567890, "005924"),
    (2000000000, "279037"),
    (20000000000, "353130"),
]


@pytest.mark.parametrize(("at", "code"), RFC_VECTORS)
def test_the_vectors_of_rfc_6238_match(at: int, code: str) -> None:
    assert engine.matching_step(RFC_SECRET, code, at=at) == at // 30


@pytest.mark.parametrize(("steps", "taken"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_one_step_either_way_is_tolerated(steps: int, taken: bool) -> None:
    at = 1_700_000_010
    secret = engine.new_secret()
    code = pyotp.TOTP(engine.encoded(secret)).at(at + 30 * steps)
    assert (engine.matching_step(secret, code, at=at) is not None) is taken


def test_a_step_that_was_used_does_not_match_again() -> None:
    assert engine.matching_step(RFC_SECRET, "287082", at=59, after=1) is None
    assert engine.matching_step(RFC_SECRET, "287082", at=59, after=0) == 1


def decoded_by_zxing(png: bytes) -> str:
    return str(
        zxingcpp.read_barcode(Image.open(io.BytesIO(png)).convert("L"), formats=zxingcpp.BarcodeFormat.QRCode).text
    )


def decoded_by_opencv(png: bytes) -> str:
    pixels = cv2.imdecode(numpy.frombuffer(png, numpy.uint8), cv2.IMREAD_GRAYSCALE)
    return str(cv2.QRCodeDetectorAruco().detectAndDecode(pixels)[0])


@pytest.mark.parametrize("issuer", ["Acme", "Größe & Söhne GmbH", "株式会社 例", "a:b/c?d=e#f%g", "X" * 64, "😀 Ünï"])
@pytest.mark.parametrize("read", [decoded_by_zxing, decoded_by_opencv])
def test_two_decoders_read_exactly_the_url(issuer: str, read: object) -> None:
    for round_ in range(5):
        url = engine.otp_auth_url(engine.new_secret(), issuer=issuer, account=f"some.one+{round_}@example.com")
        assert read(engine.qr_png(url)) == url  # type: ignore[operator]  # parametrised function


def test_url_has_issuer_account_and_secret() -> None:
    secret = engine.new_secret()
    url = engine.otp_auth_url(secret, issuer="Größe Söhne", account="a@example.com")
    read = pyotp.parse_uri(url)
    assert (read.issuer, read.name, read.secret) == ("Größe Söhne", "a@example.com", engine.encoded(secret))


@given(st.text(max_size=20))
@example("Acme: Payments")
@example(":::")
@example("a%3Ab")
def test_authenticator_reads_issuer_and_account_from_the_label(name: str) -> None:
    issuer = engine.label_issuer(name)
    url = urlsplit(engine.otp_auth_url(b"x" * 20, issuer=issuer, account="a+b@example.com"))
    # As Google Authenticator does: decode the label, then cut it at the first colon, and compare with the parameter.
    prefix, colon, account = unquote(url.path.removeprefix("/")).partition(":")
    assert (url.scheme, url.netloc, colon, account.strip()) == ("otpauth", "totp", ":", "a+b@example.com")
    assert [prefix] == parse_qs(url.query)["issuer"] == [issuer]
    assert issuer
    assert ":" not in issuer
    assert issuer.split() == (name.replace(":", " ").split() or ["Identity", "platform"])


def test_manual_entry_is_the_secret_in_groups_of_four() -> None:
    secret = engine.new_secret()
    groups = engine.grouped(secret).split(" ")
    assert [len(group) for group in groups] == [4] * 8
    assert "".join(groups) == engine.encoded(secret)


def test_ten_backup_codes_of_eighty_bits() -> None:
    codes = backup_codes.new_codes()
    assert len(set(codes)) == 10
    assert all(len(code) == 19 and set(code) <= set(backup_codes.ALPHABET + "-") for code in codes)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("ABCD-EFGH-JKMN-PQRS", "ABCDEFGHJKMNPQRS"),
        ("abcdefghjkmnpqrs", "ABCDEFGHJKMNPQRS"),
        ("OIL0-1111-2222-3333", "0110111122223333"),
        ("ABCD-EFGH-JKMN-PQR", None),
        ("ABCD-EFGH-JKMN-PQRU", None),
        ("ABCD EFGH JKMN PQRS", "ABCDEFGHJKMNPQRS"),
        ("ABCD-EFGH-JKMN-PQR\u017f", None),
        ("", None),
    ],
)
def test_backup_codes_are_normalised(typed: str, read: str | None) -> None:
    assert backup_codes.normalised(typed) == read
