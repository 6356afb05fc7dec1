"""Time-based codes (RFC 6238) over `django_otp.oath`, and the QR code that transfers a secret to an authenticator.

SHA-1, six digits, 30 seconds: what every authenticator app implements. No database and no request; the time is an argument.
"""

import base64
import io
import secrets
from urllib.parse import quote

import qrcode
import qrcode.constants
import qrcode.util
from django_otp.oath import hotp
from PIL import Image

from identity_platform.crypto import constant_time_equal

STEP_SECONDS = 30
DIGITS = 6
SECRET_BYTES = 20  # RFC 4226 section 4, R6: 160 bits
TOLERANCE = 1  # RFC 6238 section 5.2: one step for transmission and clocks
_MODULE_PIXELS = 6
_QUIET_MODULES = 4  # ISO/IEC 18004
# The best of the eight masks is found by drawing and rating all of them, which takes most of the time. Any mask is a
# valid symbol and readers undo it; with this one two independent decoders misread none of thousands of URLs.
_MASK = 5


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def encoded(secret: bytes) -> str:
    """Return the secret in base32 (RFC 4648 section 6), as authenticators take it."""
    return base64.b32encode(secret).decode("ascii")


def grouped(secret: bytes) -> str:
    """Return the secret in groups of four, for typing."""
    text = encoded(secret)
    return " ".join(text[start : start + 4] for start in range(0, len(text), 4))


def matching_step(secret: bytes, code: str, *, at: float, after: int | None = None) -> int | None:
    """Return the time step of the code: the current, previous or next one, if later than `after`; otherwise None.

    Every candidate is computed and compared in constant time, so the time does not tell which step was close.
    """
    present = int(at) // STEP_SECONDS
    matched_step = None
    for step in range(present - TOLERANCE, present + TOLERANCE + 1):
        right = constant_time_equal(f"{hotp(secret, max(step, 0), DIGITS):0{DIGITS}d}", code)
        if right and matched_step is None and (after is None or step > after):
            matched_step = step
    return matched_step


def label_issuer(name: str) -> str:
    """Return the name as authenticators can show it: without colons, which end the issuer in a label, also encoded ones."""
    return " ".join(name.replace(":", " ").split()) or "Identity platform"


def otp_auth_url(secret: bytes, *, issuer: str, account: str) -> str:
    """Return the key URI that authenticators read (Google Authenticator wiki, Key Uri Format), percent-encoded.

    `issuer` is what `label_issuer` returns. E-mail addresses of users have no colon.
    """
    label = f"{quote(issuer, safe='')}:{quote(account, safe='@')}"
    return (
        f"otpauth://totp/{label}?secret={encoded(secret)}&issuer={quote(issuer, safe='')}"
        f"&algorithm=SHA1&digits={DIGITS}&period={STEP_SECONDS}"
    )


def qr_png(text: str) -> bytes:
    """Return a QR code (ISO/IEC 18004) of exactly this ASCII text, as a black-and-white PNG.

    It is read from screens, so the lowest error correction, with its larger modules, is best.
    """
    symbol = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_L, border=_QUIET_MODULES, mask_pattern=_MASK)
    symbol.add_data(qrcode.util.QRData(text.encode("ascii"), mode=qrcode.util.MODE_8BIT_BYTE))
    symbol.make(fit=True)
    rows = symbol.get_matrix()
    picture = Image.frombytes(
        "L", (len(rows), len(rows)), b"".join(bytes(0 if dark else 255 for dark in r) for r in rows)
    )
    side = len(rows) * _MODULE_PIXELS
    out = io.BytesIO()
    picture.resize((side, side), Image.Resampling.NEAREST).convert("1").save(out, "PNG")
    return out.getvalue()
