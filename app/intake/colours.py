"""Embedded colour profiles: what the numbers of a picture mean, turned into sRGB."""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from threading import Lock

import numpy as np
from PIL import Image, ImageCms

MAX_PROFILE_BYTES = 4 * 1024 * 1024
_SPACES = {"RGB": "RGB", "CMYK": "CMYK", "L": "GRAY"}
"""Pillow's mode -> the colour space that a profile for it has."""
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION
_TOLERANCE = 2
"""A profile that moves no colour by more than this many of 255 steps says the same as sRGB."""
_MAX_KNOWN = 256
_known: dict[bytes, bool] = {}
"""SHA-256 of a profile for RGB -> whether it says the same as sRGB."""
_known_lock = Lock()


def to_srgb(image: Image.Image, profile: object, notes: list[str]) -> Image.Image:
    """RGB of the same size.

    Args:
        image: of mode RGB, CMYK, L or LAB.
        profile: the embedded ICC profile, if there is one. One that is damaged, or is for another kind of
            image, is left out of account, and `notes` says so.
    """
    if image.mode == "LAB":
        return _convert(image, ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")))
    if not isinstance(profile, bytes) or not profile:
        return image if image.mode == "RGB" else image.convert("RGB")
    try:
        if image.mode == "RGB" and _is_srgb(profile):
            return image
        converted = _convert(image, _opened(profile, image.mode))
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        notes.append("unusable colour profile ignored")
        return image.convert("RGB")
    notes.append("colours converted from the embedded profile to sRGB")
    return converted


def _is_srgb(profile: bytes) -> bool:
    """Whether a profile for RGB leaves all colours as they are: found by trying, as names say little.

    Raises:
        ValueError, OSError, PyCMSError: it cannot be used.
    """
    if len(profile) > MAX_PROFILE_BYTES:
        raise ValueError("too long")
    digest = sha256(profile).digest()
    known = _known.get(digest)
    if known is None:
        probe = _probe()
        found = np.asarray(_convert(probe, _opened(profile, "RGB")), dtype=np.int16)
        known = bool(np.abs(found - np.asarray(probe)).max() <= _TOLERANCE)
        with _known_lock:
            if len(_known) >= _MAX_KNOWN:
                del _known[next(iter(_known))]
            _known[digest] = known
    return known


def _probe() -> Image.Image:
    """All greys, and a grid over all colours."""
    greys = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 3, axis=1)
    steps = np.linspace(0, 255, 9).astype(np.uint8)
    grid = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(-1, 3)
    return Image.fromarray(np.concatenate([greys, grid])[None])


def _opened(profile: bytes, mode: str) -> ImageCms.ImageCmsProfile:
    """Raises ValueError and OSError."""
    if len(profile) > MAX_PROFILE_BYTES:
        raise ValueError("too long")
    opened = ImageCms.ImageCmsProfile(BytesIO(profile))
    if opened.profile.xcolor_space.strip() != _SPACES.get(mode):
        raise ValueError("for another kind of image")
    return opened


def _convert(image: Image.Image, source: ImageCms.ImageCmsProfile) -> Image.Image:
    target = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
    converted = ImageCms.profileToProfile(image, source, target, intent, "RGB", flags=_FLAGS)
    assert converted is not None
    return converted
