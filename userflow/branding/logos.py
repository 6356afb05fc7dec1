"""Logos: an uploaded image is decoded and written again, so that browsers get nothing but its pixels."""

import hashlib
import io
from typing import Final, NamedTuple

from PIL import Image, ImageOps

LARGEST: Final = 200 * 1024
LONGEST_SIDE: Final = 2000
# Twice what the pages show, for screens with two pixels per point.
STORED_SIZE: Final = (640, 240)
TOO_LARGE: Final = f"Send a file of at most {LARGEST // 1024} KB."
TOO_WIDE: Final = f"Send an image of at most {LONGEST_SIDE} x {LONGEST_SIDE} pixels."
TYPES: Final = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
# Pillow's decoder of WebP allocates the whole canvas, 8 bytes for each pixel, as soon as a file is opened. Before that, Pillow
# rejects a header that states more than twice this many. No other code of the platform opens images.
Image.MAX_IMAGE_PIXELS = LONGEST_SIDE * LONGEST_SIDE


class Logo(NamedTuple):
    """A logo as it is stored and served."""

    data: bytes
    media_type: str
    digest: str


class LogoRejected(Exception):
    """The file cannot be a logo; its text says why."""


def safe_logo(data: bytes) -> Logo:
    """Return the image written again in its own format, without metadata and at most as large as the pages need.

    Raises LogoRejected: not a PNG, JPEG or WebP, broken, too many bytes or pixels.
    """
    if len(data) > LARGEST:
        raise LogoRejected(TOO_LARGE)
    try:
        with Image.open(io.BytesIO(data), formats=list(TYPES)) as image:
            # Photos of phones have a second picture; they are JPEG nevertheless.
            form = "JPEG" if image.format == "MPO" else image.format or ""
            # Only the header has been read so far: a small file can unpack to gigabytes.
            if max(image.size) > LONGEST_SIDE:
                raise LogoRejected(TOO_WIDE)
            written = _written(image, form)
    except LogoRejected:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as problem:
        raise LogoRejected(TOO_WIDE) from problem
    except Exception as problem:  # the decoders raise errors of many kinds for broken files, also SyntaxError
        raise LogoRejected("Send a PNG, JPEG or WebP image. This file could not be read.") from problem
    if len(written) > LARGEST:
        raise LogoRejected(f"The image has too much detail for {LARGEST // 1024} KB. Send a simpler one.")
    return Logo(written, TYPES[form], hashlib.sha256(written).hexdigest()[:32])


def _written(image: Image.Image, form: str) -> bytes:
    turned = ImageOps.exif_transpose(image)
    # A new image of pixels: profiles, comments and further frames stay behind.
    pixels = turned.convert("RGB" if form == "JPEG" else "RGBA")
    pixels.info.clear()
    pixels.thumbnail(STORED_SIZE)
    out = io.BytesIO()
    pixels.save(out, form, **({"optimize": True} if form == "PNG" else {"quality": 90}))
    return out.getvalue()
