"""Embedded colour profiles are honoured, or left alone with a word about it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from app.intake.decode import Decoded, decode
from tests.intake.pictures import RED, encode
from tests.intake.profiles import (
    BLUE_XYZ,
    RED_XYZ,
    cmyk_profile,
    grey_profile,
    rgb_profile,
    srgb_profile,
    swapped_profile,
)

CONVERTED = "colours converted from the embedded profile to sRGB"
IGNORED = "unusable colour profile ignored"
BLUE = (RED[2], RED[1], RED[0])


def decoded(image: Image.Image, format: str, profile: bytes, **options: Any) -> Decoded:
    return decode(encode(image, format, icc_profile=profile, **options))


def close(found: Decoded, expected: tuple[int, int, int], tolerance: int = 6) -> bool:
    return bool(np.abs(found.image.astype(int) - np.asarray(expected)).max() <= tolerance)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
def test_the_profile_says_what_the_numbers_mean(format: str) -> None:
    found = decoded(Image.new("RGB", (32, 24), RED), format, swapped_profile())
    assert close(found, BLUE, 12)
    assert found.notes == [CONVERTED]


def test_wide_gamut_red() -> None:
    """Display P3: its (220, 30, 40) is redder than sRGB can say."""
    display_p3 = rgb_profile((0.5151, 0.2412, -0.0011), (0.2919, 0.6922, 0.0419), (0.1572, 0.0666, 0.7841))
    found = decoded(Image.new("RGB", (32, 24), RED), "PNG", display_p3)
    assert found.image[0, 0, 0] > 235
    assert found.notes == [CONVERTED]


def test_srgb_itself_is_left_as_it_is() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    found = decoded(Image.new("RGB", (32, 24), RED), "PNG", profile)
    assert close(found, RED, 0)
    assert found.notes == []


@pytest.mark.parametrize("name", ["sRGB", "sRGB IEC61966-2.1", "GIMP built-in Linear sRGB", "scRGB"])
def test_a_name_does_not_make_a_profile_srgb(name: str) -> None:
    """Linear light: half of it is far lighter than half of sRGB's numbers."""
    found = decoded(Image.new("RGB", (32, 24), (128, 128, 128)), "PNG", rgb_profile(gamma=1.0, name=name))
    assert close(found, (188, 188, 188), 2)
    assert found.notes == [CONVERTED]
    swapped = rgb_profile(red=BLUE_XYZ, blue=RED_XYZ, name=name)
    assert close(decoded(Image.new("RGB", (32, 24), RED), "PNG", swapped), BLUE)


@pytest.mark.parametrize("name", ["sRGB", "c2", "Camera"])
def test_what_says_the_same_as_srgb_is_left_alone_whatever_its_name(name: str) -> None:
    found = decoded(Image.new("RGB", (32, 24), RED), "PNG", srgb_profile(name))
    assert close(found, RED, 0)
    assert found.notes == []


def test_many_profiles_are_told_apart_though_few_are_remembered() -> None:
    picture = Image.new("RGB", (8, 8), RED)
    for number in range(300):
        profile = srgb_profile(str(number)) if number % 2 else rgb_profile(gamma=1.0, name=str(number))
        found = decoded(picture, "PNG", profile)
        assert (found.notes == []) == bool(number % 2)


def test_transparency_and_palettes_keep_their_profile() -> None:
    image = Image.new("RGBA", (32, 24), (*RED, 255))
    image.paste((0, 0, 0, 0), (16, 0, 32, 24))
    found = decoded(image, "PNG", swapped_profile())
    assert np.abs(found.image[:, :16].astype(int) - np.asarray(BLUE)).max() <= 6
    assert (found.image[:, 16:] == 255).all()
    palette = Image.new("P", (32, 24), 1)
    palette.putpalette([0, 0, 0, *RED])
    assert close(decoded(palette, "PNG", swapped_profile()), BLUE)


@pytest.mark.parametrize("mode", ["L", "LA"])
def test_grey(mode: str) -> None:
    found = decoded(Image.new(mode, (32, 24), 128 if mode == "L" else (128, 255)), "PNG", grey_profile(1.0))
    assert close(found, (188, 188, 188))  # half of the light
    wide = Image.fromarray(np.full((24, 32), 32896, np.uint16))
    assert close(decoded(wide, "PNG", grey_profile(1.0)), (188, 188, 188))


def test_cmyk() -> None:
    inks = Image.new("CMYK", (32, 24), (255, 0, 0, 0))
    found = decoded(inks, "JPEG", cmyk_profile(), quality=100)
    red, green, blue = found.image[0, 0].tolist()
    assert green > red + 60  # this press prints green where others print cyan
    assert green > blue + 60
    assert found.notes == [CONVERTED]
    plain = decoded(Image.new("CMYK", (32, 24), (0, 0, 0, 255)), "TIFF", cmyk_profile())
    assert close(plain, (255, 255, 255), 12)


def test_lab() -> None:
    to_lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    lab = ImageCms.profileToProfile(Image.new("RGB", (32, 24), RED), *to_lab, outputMode="LAB")
    assert lab is not None
    assert close(decode(encode(lab, "TIFF")), RED, 8)


@pytest.mark.parametrize(
    "profile",
    [b"no profile at all", cmyk_profile(), grey_profile(2.2), rgb_profile()[:200], b"\0" * 5_000_000,
     rgb_profile()[:128] + b"\xff" * 400],
)  # fmt: skip
def test_profiles_that_cannot_be_used_are_ignored(profile: bytes) -> None:
    found = decoded(Image.new("RGB", (32, 24), RED), "TIFF", profile)
    assert close(found, RED, 0)
    assert found.notes == [IGNORED]


def test_the_profiles_of_these_tests_are_profiles() -> None:
    for profile in (rgb_profile(), swapped_profile(), grey_profile(2.2), cmyk_profile()):
        ImageCms.ImageCmsProfile(BytesIO(profile))
