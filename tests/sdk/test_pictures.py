"""However a caller has a picture, the service sees it as the caller does."""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.intake.decode import decode
from pointbox.pictures import ImageHandle, Link, Prepared, Upload, prepare, size_of, upright
from tests.intake.pictures import encode, grey_ramp_16, plain, with_orientation


def seen(prepared: Prepared) -> np.ndarray:
    """What the service makes of it."""
    assert isinstance(prepared, Upload)
    return decode(prepared.data).image


def test_a_red_array_arrives_red() -> None:
    red = np.zeros((48, 64, 3), np.uint8)
    red[..., 0] = 255
    assert (seen(prepare(red)) == red).all()
    large = np.tile(red, (40, 40, 1))
    prepared = prepare(large)
    assert isinstance(prepared, Upload)
    assert prepared.data[:2] == b"\xff\xd8"  # as JPEG, because of its size
    assert (abs(seen(prepared).astype(int) - large) <= 2).all()


@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 4)])
def test_grey_arrays_and_arrays_with_transparency(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    image = seen(prepare(array))
    assert image.shape == (48, 64, 3)
    if len(shape) == 2:
        assert (image == array[..., None]).all()
    else:
        assert (image[array[..., 3] == 0] == 255).all()


def test_views_of_arrays() -> None:
    array = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    assert (seen(prepare(array[::-1, ::2])) == array[::-1, ::2]).all()
    assert (seen(prepare(array[..., ::-1])) == array[..., ::-1]).all()


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((8, 8, 3)), "uint8"),
        (np.zeros((8, 8, 3), np.uint16), "uint8"),
        (np.zeros((3, 8, 8), np.uint8), "RGB"),
        (np.zeros((8, 8, 2), np.uint8), "RGB"),
        (np.zeros((2, 8, 8, 3), np.uint8), "RGB"),
        (np.zeros((0, 8, 3), np.uint8), "RGB"),
    ],
)
def test_arrays_that_are_no_pictures(array: np.ndarray, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        prepare(array)


@pytest.mark.parametrize("size", [(0, 0), (8, 0), (0, 8)])
def test_a_picture_without_pixels(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"{size[0]} x {size[1]} pixels is not a picture"):
        prepare(Image.new("RGB", size))


@pytest.mark.parametrize("nothing", [None, 7, ["a.png"], open])
def test_things_that_are_no_pictures(nothing: Any) -> None:
    with pytest.raises(TypeError, match="pass a path"):
        prepare(nothing)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_orientation_in_exif_is_applied_once(orientation: int, tmp_path: Path) -> None:
    data = with_orientation(orientation, "PNG")
    path = tmp_path / "turned.png"
    path.write_bytes(data)
    expected = decode(data).image
    with Image.open(path) as image:
        for source in (data, path, str(path), bytearray(data), memoryview(data), image):
            prepared = prepare(source)
            assert (seen(prepared) == expected).all()
            assert size_of(prepared) == (expected.shape[1], expected.shape[0])
            assert (np.asarray(upright(source)) == expected).all()


def images() -> dict[str, Image.Image]:
    """A picture in every mode that Pillow hands out."""
    colour = plain(64, 48)
    alpha = colour.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize((64, 48)))
    modes = ("1", "L", "P", "CMYK", "YCbCr", "HSV", "LAB", "RGBX")
    return {
        **{mode: colour.convert(mode) for mode in modes if mode not in ("HSV", "LAB")},
        "RGB": colour,
        "RGBA": alpha,
        "LA": alpha.convert("LA"),
        "PA": alpha.convert("PA"),
        "RGBa": alpha.convert("RGBa"),
        "HSV": colour.convert("HSV"),
        "I;16": Image.open(BytesIO(grey_ramp_16())),
        "I": colour.convert("I"),
        "F": colour.convert("F"),
    }


@pytest.mark.parametrize("mode", images())
def test_every_mode_of_pillow_can_be_sent(mode: str) -> None:
    image = images()[mode]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = seen(prepare(image))
    assert got.shape == (image.height, image.width, 3)
    if mode in ("RGB", "RGBA", "LA", "P", "1", "L"):
        assert (got == np.asarray(upright(image))).all()
    if mode in ("CMYK", "YCbCr", "HSV", "RGBX"):
        assert (abs(got.astype(int) - np.asarray(plain(64, 48))) <= 4).all()


def test_a_picture_with_more_than_8_bits_keeps_its_depth() -> None:
    ramp = Image.open(BytesIO(grey_ramp_16()))
    for image in (ramp, ramp.convert("I"), ramp.convert("I").convert("F")):
        got = seen(prepare(image))
        assert len(np.unique(got)) > 200
        assert (abs(np.asarray(upright(image)).astype(int) - got) <= 1).all()


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    for content in (encode(plain(), "WEBP"), encode(plain(), "HEIF"), b"", b"no image at all"):
        path = tmp_path / "a.jpg"
        path.write_bytes(content)
        assert prepare(path) == Upload(content)
        assert prepare(str(path)) == Upload(content)


def test_what_is_elsewhere_stays_there() -> None:
    for url in ("https://example.org/a.png", "http://example.org/a.png", "data:image/png;base64,AAAA"):
        assert prepare(url) == Link(url)
    handle = ImageHandle(image_id="i1", width=5, height=7)
    assert prepare(handle) is handle
    assert size_of(handle) == (5, 7)
    for source in (handle, "https://example.org/a.png"):
        with pytest.raises(ValueError, match="pass it"):
            upright(source)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jpg"):
        prepare("nowhere.jpg")
