"""Image files of every format that Pillow writes, and seeded ways to damage them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import tifffile
from PIL import Image

from tests.intake.pictures import encode, grey_ramp_16, plain, with_orientation, ycck_jpeg
from tests.intake.profiles import cmyk_profile, swapped_profile

MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "I;16", "I", "F", "CMYK", "YCbCr", "LAB")
NOT_FILES = {"PDF"}
"""Written by Pillow as documents; they take long and are no images."""


@cache
def originals() -> dict[str, bytes]:
    """Name -> whole file. Formats that are not accepted are among them: they must be refused with a word."""
    Image.init()
    files = {
        "jpeg, turned": with_orientation(6),
        "png, turned": with_orientation(8, "PNG"),
        "jpeg, ycck": ycck_jpeg((220, 30, 40)),
        "jpeg, profile": encode(plain(), "JPEG", icc_profile=swapped_profile()),
        "jpeg, press": encode(plain().convert("CMYK"), "JPEG", icc_profile=cmyk_profile()),
        "jpeg, progressive": encode(plain(), "JPEG", progressive=True),
        "png, 16 bit": grey_ramp_16(),
        "png, profile": encode(plain(), "PNG", icc_profile=swapped_profile()),
    }
    for name, dtype, options in (
        ("planar", np.uint16, {"planarconfig": "separate"}),
        ("tiles", np.float32, {"compression": "lzw", "predictor": True, "tile": (16, 32)}),
        ("strips", np.uint16, {"compression": "zlib", "rowsperstrip": 7, "byteorder": ">"}),
    ):
        files[f"tiff, {name}"] = _wide_tiff(dtype, options)
    frames = [plain(), plain().transpose(Image.Transpose.ROTATE_180)]
    for format in ("GIF", "WEBP", "PNG", "TIFF", "AVIF", "MPO"):
        files[f"{format}, animated"] = encode(frames[0], format, save_all=True, append_images=frames[1:])
    for format in sorted(set(Image.SAVE) - NOT_FILES):
        for mode in MODES:
            data = _saved(format, mode)
            if data is not None:
                files[f"{format} {mode}"] = data
    return files


def _wide_tiff(dtype: type[np.generic], options: dict[str, Any]) -> bytes:
    out = BytesIO()
    samples = np.asarray(plain()).astype(dtype)
    if options.get("planarconfig") == "separate":
        samples = np.ascontiguousarray(np.moveaxis(samples, -1, 0))
    tifffile.imwrite(out, samples, photometric="rgb", metadata=None, **options)
    return out.getvalue()


def _saved(format: str, mode: str) -> bytes | None:
    """None when this format has no such mode."""
    out = BytesIO()
    try:
        image = plain().convert("L") if mode == "I;16" else plain()
        image.convert(mode).save(out, format)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return None
    return out.getvalue()


def mutated(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` damaged files, each format in turn: (what it is, bytes). One seed always gives the same."""
    chance = random.Random(seed)
    names = list(originals())
    for number in range(count):
        name = names[number % len(names)]
        kind = chance.choice(("cut", "bits", "bytes", "head", "hole", "twice", "splice"))
        yield f"{name}, {kind}, {number}", _damage(originals()[name], kind, chance)


def _damage(whole: bytes, kind: str, chance: random.Random) -> bytes:
    data = bytearray(whole)
    where = chance.randrange(len(data))
    if kind == "cut":
        del data[where:]
    elif kind == "bits":
        for _ in range(chance.choice((1, 2, 8, 64))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == "bytes":
        for _ in range(chance.choice((1, 4, 32))):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
    elif kind == "head":
        for _ in range(chance.choice((1, 2, 4))):
            data[chance.randrange(min(len(data), 64))] = chance.choice((0, 1, 127, 128, 255))
    elif kind == "hole":
        del data[where : where + chance.randrange(1, 200)]
    elif kind == "twice":
        data[where:where] = data[where : where + chance.randrange(1, 200)]
    else:
        other = chance.choice(list(originals().values()))
        data[where:] = other[chance.randrange(len(other)) :]
    return bytes(data)
