"""Embedded colour profiles: what the numbers of a picture mean, turned into sRGB."""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageCms

MAX_PROFILE_BYTES = 4 * 1024 * 1024
_SPACES = {"RGB": "RGB", "CMYK": "CMYK", "L": "GRAY"}
"""Pillow's mode -> the colour space that a profile for it has."""
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION


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
        return image.convert("RGB")
    try:
        embedded = _opened(profile, image.mode)
        if embedded is None:
            return image.convert("RGB")
        converted = _convert(image, embedded)
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        notes.append("unusable colour profile ignored")
        return image.convert("RGB")
    notes.append("colours converted from the embedded profile to sRGB")
    return converted


def _opened(profile: bytes, mode: str) -> ImageCms.ImageCmsProfile | None:
    """None for sRGB itself. Raises ValueError and OSError."""
    if len(profile) > MAX_PROFILE_BYTES:
        raise ValueError("too long")
    opened = ImageCms.ImageCmsProfile(BytesIO(profile))
    if opened.profile.xcolor_space.strip() != _SPACES.get(mode):
        raise ValueError("for another kind of image")
    is_srgb = mode == "RGB" and "srgb" in (opened.profile.profile_description or "").lower()
    return None if is_srgb else opened


def _convert(image: Image.Image, source: ImageCms.ImageCmsProfile) -> Image.Image:
    target = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
    converted = ImageCms.profileToProfile(image, source, target, intent, "RGB", flags=_FLAGS)
    assert converted is not None
    return converted
