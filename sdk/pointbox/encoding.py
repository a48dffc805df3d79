"""Pictures in memory as files: every mode of Pillow, without losing what the service could use."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from PIL import Image, features

LOSSLESS_PIXELS = 1 << 20
"""Up to here a picture in memory travels as PNG; a larger one, if JPEG can hold it, as JPEG."""
JPEG_QUALITY = 95
MAX_PROFILE_BYTES = 4 << 20
"""The service does not use longer ones."""
_PNG_MODES = frozenset({"1", "L", "LA", "P", "I;16", "RGB", "RGBA"})
_TIFF_MODES = frozenset({"I", "F", "CMYK", "LAB"})
_JPEG_MODES = frozenset({"L", "RGB", "CMYK"})
_PLAIN = {"La": "LA", "RGBa": "RGBA", "PA": "RGBA"}
_16_BITS = {"I;16B": "I;16B", "I;16L": "I;16", "I;16N": "I;16N"}
"""Mode -> how Pillow calls this order of bytes when it reads them."""


def encode(image: Image.Image) -> bytes:
    """The image as a file that loses nothing the model could see, and nothing at all if it is small."""
    image = storable(image)
    sink = BytesIO()
    options: dict[str, Any] = {"icc_profile": _profile(image)}
    is_large = image.width * image.height > LOSSLESS_PIXELS
    if is_large and image.mode in _JPEG_MODES and "transparency" not in image.info:
        image.save(sink, "JPEG", quality=JPEG_QUALITY, subsampling=0, comment=b"", **options)
    elif image.mode in _TIFF_MODES:
        compression = "tiff_adobe_deflate" if features.check("libtiff") else None
        image.save(sink, "TIFF", compression=compression, **options)
    else:
        # EXIF data is left out: the picture is upright already.
        image.save(sink, "PNG", compress_level=1, exif=b"", **options)
    return sink.getvalue()


def storable(image: Image.Image) -> Image.Image:
    """The image in a mode that some file format has, with the same colours, depth and transparency."""
    if image.mode in _PNG_MODES | _TIFF_MODES:
        return image
    if image.mode in _16_BITS:
        # Pillow's own conversions clip to 8 bits.
        native = Image.frombytes("I;16", image.size, image.tobytes(), "raw", _16_BITS[image.mode])
        native.info = image.info.copy()
        return native
    return image.convert(_PLAIN.get(image.mode, "RGB"))


def _profile(image: Image.Image) -> bytes | None:
    """The colour profile to send along; one that the service would leave out stays here."""
    profile = image.info.get("icc_profile")
    if isinstance(profile, bytes) and 0 < len(profile) <= MAX_PROFILE_BYTES:
        return profile
    return None
