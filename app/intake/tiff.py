"""The kinds of TIFF that Pillow refuses or gets wrong, as all but unsigned bytes; `tifffile` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from math import prod

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from app.intake import levels
from app.intake.refusals import EndsEarlyError, not_read
from app.problems import ProblemError

MAX_DECODED_BYTES = 1 << 29
MAX_SEGMENTS = 1 << 17
"""Tiles or strips; each costs time however small it is."""

_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _CIE_LAB, _ICC_LAB = 0, 1, 2, 3, 5, 8, 9
_COLOURS = {_WHITE_IS_ZERO: 1, _BLACK_IS_ZERO: 1, _RGB: 3, _PALETTE: 1, _CMYK: 4, _CIE_LAB: 3, _ICC_LAB: 3}
"""Photometric interpretation -> how many samples are colours; others may follow."""
_MEANINGS = {
    _PALETTE: "palette",
    4: "transparency mask",
    _CMYK: "CMYK",
    6: "YCbCr",
    _CIE_LAB: "CIE L*a*b*",
    _ICC_LAB: "ICC L*a*b*",
    10: "ITU L*a*b*",
    32803: "camera raw",
    32844: "LogL",
    32845: "LogLuv",
    34892: "camera raw",
}
"""How the interpretations are called that, in some kinds or in all, are not read."""
_COMPRESSIONS = frozenset({1, 5, 8, 32946, 32773, 50000})
"""None, LZW, deflate by both of its numbers, PackBits and Zstandard."""
_PILLOW_COMPRESSIONS = _COMPRESSIONS | {2, 3, 4, 6, 7, 32771, 32809, 34925}
"""And CCITT, JPEG, ThunderScan and LZMA."""
_OLD_JPEG = 6
_JPEG = frozenset({_OLD_JPEG, 7})
_PREMULTIPLIED, _ALPHA = 1, 2
_NUMBERS = (
    "imagewidth", "imagelength", "imagedepth", "samplesperpixel", "planarconfig",
    "sampleformat", "compression", "photometric", "predictor", "fillorder",
)  # fmt: skip
"""Tags that say one thing, where they are in order."""
_ORIENTATION, _PROFILE, _INK_SET, _SAMPLE_FORMAT = 274, 34675, 332, 339
_CMYK_INKS = 1
_PLANAR = 2


@dataclass(frozen=True, slots=True)
class Tags:
    """What the first page of a TIFF says of itself.

    Attributes:
        page: tifffile's; reads its pixels from the bytes that it was opened on.
        orientation: 1 to 8.
    """

    page: tifffile.TiffPage
    orientation: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height before the orientation is applied."""
        return self.page.imagewidth, self.page.imagelength

    @property
    def decoded_bytes(self) -> int:
        """Of all its samples."""
        return self.page.nbytes

    def part_bytes(self, most: int) -> list[int]:
        """Compressed bytes of each strip or tile, no more than `most`: the header may claim anything."""
        return [min(count, most) for count in self.page.databytecounts]

    @property
    def profile(self) -> bytes | None:
        value = self.page.tags.valueof(_PROFILE)
        return value if isinstance(value, bytes) else None


@dataclass(frozen=True, slots=True)
class Pixels:
    """Decoded, in 8 bits and not turned: `colours` of mode L, RGB, CMYK or LAB, `alpha` of mode L."""

    colours: Image.Image
    alpha: Image.Image | None


def read_tags(data: bytes) -> Tags:
    """Parse the first page without decoding it. Raises anything at all where it is damaged."""
    page = tifffile.TiffFile(BytesIO(data)).pages[0]
    assert isinstance(page, tifffile.TiffPage)
    bits = page.bitspersample if isinstance(page.bitspersample, tuple) else (page.bitspersample,)
    numbers = [*bits, *(getattr(page, name) for name in _NUMBERS)]
    if not bits or not all(isinstance(number, int) for number in numbers):
        raise ValueError("lists or texts where numbers should be")
    value = page.tags.valueof(_ORIENTATION, 1)
    orientation = value if isinstance(value, int) and 1 <= value <= 8 else 1
    return Tags(page, orientation)


def pillow_reads(tags: Tags) -> bool:
    """Whether Pillow is right about this kind, if it reads it at all."""
    page = tags.page
    if page.compression not in _PILLOW_COMPRESSIONS:
        return False
    if page.compression in _JPEG:
        return page.bitspersample == 8
    if page.photometric == _PALETTE and _narrow_palette(page):
        return False
    more = page.samplesperpixel > _COLOURS.get(page.photometric, page.samplesperpixel)
    if more and (page.planarconfig == _PLANAR or page.photometric != _RGB):
        return False
    return page.sampleformat == 1 and page.bitspersample in (1, 2, 4, 8)


def check_whole(tags: Tags, length: int) -> None:
    """Check what decoding takes, and that the file of `length` bytes holds all tiles or strips of the page.

    Raises:
        EndsEarlyError: some are missing.
        ProblemError: there are too many, or they are too large.
    """
    page = tags.page
    if page.compression == _OLD_JPEG:
        return  # says where its pixels are in other ways
    needed = prod(page.chunked)
    if needed > MAX_SEGMENTS:
        raise _too_large(f"has {needed} tiles or strips; at most {MAX_SEGMENTS}")
    bits = page.bitspersample if isinstance(page.bitspersample, int) else max(page.bitspersample)
    decoded = needed * prod(page.chunks) * bits // 8
    if decoded > MAX_DECODED_BYTES:
        raise _too_large(f"decodes to {decoded} bytes; at most {MAX_DECODED_BYTES}")
    segments = list(zip(page.dataoffsets, page.databytecounts, strict=False))[:needed]
    if len(segments) < needed or not all(0 < start < length and size for start, size in segments):
        raise EndsEarlyError


def _too_large(what: str) -> ProblemError:
    return ProblemError("image-too-large", f"The TIFF {what} are read.", field="image")


def check_kind(tags: Tags) -> None:
    """Check that `read` can read this kind.

    Raises:
        ProblemError: unsupported-media, with field ``image``.
    """
    page = tags.page
    kind = _described(page)
    formats = page.tags.valueof(_SAMPLE_FORMAT, 1)
    mixed = isinstance(formats, tuple) and len(set(formats)) > 1
    if (
        page.dtype is None
        or page.dtype.kind not in "buif"
        or not isinstance(page.bitspersample, int)
        or mixed
    ):
        raise not_read("TIFF", kind)
    if page.compression not in _COMPRESSIONS:
        raise not_read("TIFF", f"{kind}, {_compression(page)}")
    colours = _COLOURS.get(page.photometric)
    if colours is None:
        raise not_read("TIFF", f"{kind}, {_meaning(page)}")
    if page.imagedepth > 1:
        raise not_read("TIFF", f"{kind}, {page.imagedepth} layers")
    extra = page.samplesperpixel - colours
    integers = page.dtype.kind in "bu" and page.bitspersample <= 16
    if extra < 0 or extra > (1 if colours == 1 else 3):
        raise not_read("TIFF", kind)
    if page.photometric not in (_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB) and not integers:
        raise not_read("TIFF", f"{kind}, {_meaning(page)}")
    if page.photometric == _CMYK and page.tags.valueof(_INK_SET, _CMYK_INKS) != _CMYK_INKS:
        raise not_read("TIFF", f"{kind}, inks other than CMYK")


def read(tags: Tags, notes: list[str]) -> Pixels:
    """Decode the first page, after `check_kind` and `check_whole`. Raises anything where it is damaged."""
    page = tags.page
    samples = page.asarray(maxworkers=1)
    width, height = tags.size
    if page.planarconfig == _PLANAR and page.samplesperpixel > 1:
        samples = np.moveaxis(samples.reshape(page.samplesperpixel, height, width), 0, -1)
    samples = samples.reshape(height, width, page.samplesperpixel)
    count = _COLOURS[page.photometric]
    alpha, premultiplied = _alpha(page, samples, count)
    colours = _colours(page, samples[..., :count], notes)
    del samples
    if alpha is not None and premultiplied:
        whole = np.maximum(alpha, 1)[..., None].astype(np.uint16)
        colours = np.minimum((colours.astype(np.uint16) * 255 + whole // 2) // whole, 255).astype(np.uint8)
    return Pixels(_image(page, colours), None if alpha is None else Image.fromarray(alpha))


def _alpha(page: tifffile.TiffPage, samples: levels.Samples, at: int) -> tuple[levels.Bytes | None, bool]:
    """Alpha from the sample behind the colours, and whether these are multiplied by it."""
    declared = page.extrasamples[0] if page.extrasamples else None
    if declared is None and page.photometric == _RGB and page.samplesperpixel == 4:
        declared = _ALPHA  # writers leave the tag out
    if declared not in (_PREMULTIPLIED, _ALPHA) or page.samplesperpixel <= at:
        return None, False
    alpha = samples[..., at]
    if page.dtype.kind == "f":
        return levels.unit_range(alpha), declared == _PREMULTIPLIED
    bits = page.bitspersample - (page.dtype.kind == "i")
    return levels.full_range(np.maximum(alpha, 0), bits), declared == _PREMULTIPLIED


def _colours(page: tifffile.TiffPage, samples: levels.Samples, notes: list[str]) -> levels.Bytes:
    """uint8 [height, width, 1, 3 or 4]; the colours of a palette looked up."""
    if page.photometric == _PALETTE:
        table = _palette(page)
        return table[np.minimum(samples[..., 0], len(table) - 1)]
    if page.photometric in (_CIE_LAB, _ICC_LAB):
        return _lab(page, samples)
    done = _scaled(page, samples, notes)
    return 255 - done if page.photometric == _WHITE_IS_ZERO else done


def _scaled(page: tifffile.TiffPage, samples: levels.Samples, notes: list[str]) -> levels.Bytes:
    what = "grey" if samples.shape[-1] == 1 else "colours"
    if page.dtype.kind in "bu" and page.bitspersample <= 16:
        if what == "grey" and page.bitspersample > 8:
            notes.append(f"{page.bitspersample}-bit grey scaled to 8 bits")
        return levels.full_range(samples, page.bitspersample)
    low, high = levels.extremes(samples)
    if page.dtype.kind == "f" and low >= 0.0 and high <= 1.0:
        notes.append(f"floating point {what} from 0 to 1 scaled to 8 bits")
        return levels.unit_range(samples)
    own = "its" if what == "grey" else "their"
    notes.append(f"{what} stretched from {own} own minimum and maximum to 8 bits")
    return levels.stretched(samples, low, high)


def _lab(page: tifffile.TiffPage, samples: levels.Samples) -> levels.Bytes:
    """As Pillow's mode LAB keeps it: a and b offset by 128."""
    lab = (samples >> (page.bitspersample - 8)).astype(np.uint8)
    if page.photometric == _CIE_LAB:
        lab[..., 0] = levels.full_range(samples[..., 0], page.bitspersample)
        lab[..., 1:] ^= 128  # they are signed
    return lab


def _palette(page: tifffile.TiffPage) -> NDArray[np.uint8]:
    """[2 ** bits, 3] colours."""
    table = np.asarray(page.colormap).T
    return (table if _narrow_palette(page) else table >> 8).astype(np.uint8)


def _narrow_palette(page: tifffile.TiffPage) -> bool:
    """Some writers put 8-bit colours where the format has 16-bit ones; viewers see that none is above 255."""
    return page.colormap is not None and int(np.max(page.colormap)) < 256


def _image(page: tifffile.TiffPage, colours: levels.Bytes) -> Image.Image:
    count = colours.shape[-1]
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[count]
    if page.photometric in (_CIE_LAB, _ICC_LAB):
        mode = "LAB"
    if mode in ("L", "RGB"):
        return Image.fromarray(np.ascontiguousarray(colours[..., 0] if count == 1 else colours))
    bands = [Image.fromarray(np.ascontiguousarray(colours[..., at])) for at in range(count)]
    return Image.merge(mode, bands)


def _described(page: tifffile.TiffPage) -> str:
    bits = page.bitspersample
    named = f"{bits} bits" if isinstance(bits, int) else f"{'-'.join(map(str, bits))} bits"
    known = page.dtype is not None and page.dtype.kind != "b" and isinstance(bits, int)
    kind = str(page.dtype) if known else named
    count = page.samplesperpixel
    return kind if count == 1 else f"{kind}, {count} samples"


def _compression(page: tifffile.TiffPage) -> str:
    name = getattr(page.compression, "name", "")
    return f"{name.replace('_', ' ')} compression" if name else f"compression {page.compression}"


def _meaning(page: tifffile.TiffPage) -> str:
    """Of the samples."""
    number = int(page.photometric)
    return _MEANINGS.get(number, f"photometric interpretation {number}")
