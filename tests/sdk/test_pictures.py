"""However a caller has a picture, the service sees it as the caller does."""

from __future__ import annotations

import subprocess
import sys
import warnings
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms
from PIL.ContainerIO import ContainerIO

from app.intake.decode import decode
from pointbox.pictures import ImageHandle, Link, Prepared, Upload, prepare, size_of, upright
from tests.intake.containers import png_with
from tests.intake.pictures import RED, chunk, encode, grey_ramp_16, plain, with_orientation
from tests.intake.profiles import cmyk_profile, grey_profile, swapped_profile


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


def lab(colour: Image.Image) -> Image.Image:
    to_lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    converted = ImageCms.profileToProfile(colour, *to_lab, outputMode="LAB")
    assert converted is not None
    return converted


def ramp(mode: str) -> Image.Image:
    """All greys from 0 to 65535 in 256 steps."""
    order = ">u2" if mode == "I;16B" else "<u2"
    values = np.repeat(np.linspace(0, 65535, 256).astype(order)[None], 16, axis=0)
    return Image.frombytes(mode, (256, 16), values.tobytes())


def images() -> dict[str, Image.Image]:
    """A picture in every mode that Pillow hands out."""
    colour = plain(64, 48)
    alpha = colour.convert("RGBA")
    alpha.putalpha(Image.linear_gradient("L").resize((64, 48)))
    modes = ("1", "L", "P", "CMYK", "YCbCr", "HSV", "RGBX")
    return {
        **{mode: colour.convert(mode) for mode in modes},
        "RGB": colour,
        "RGBA": alpha,
        "LA": alpha.convert("LA"),
        "PA": alpha.convert("PA"),
        "RGBa": alpha.convert("RGBa"),
        "La": alpha.convert("LA").convert("La"),
        "LAB": lab(colour),
        "I;16": Image.open(BytesIO(grey_ramp_16())),
        **{mode: ramp(mode) for mode in ("I;16B", "I;16L", "I;16N")},
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
    if mode in ("RGB", "RGBA", "LA", "P", "1", "L", "PA", "RGBa", "La", "CMYK", "RGBX"):
        assert (got == np.asarray(upright(image))).all()
    if mode in ("PA", "RGBa"):
        assert (abs(got.astype(int) - seen(prepare(images()["RGBA"]))) <= 2).all()
    if mode == "La":
        assert (abs(got.astype(int) - seen(prepare(images()["LA"]))) <= 2).all()
    if mode.startswith("I;16"):
        assert (abs(got[..., 0].astype(int) - np.arange(256)) <= 1).all()
        assert (abs(np.asarray(upright(image)).astype(int) - got) <= 1).all()
    if mode == "LAB":
        assert (abs(np.asarray(upright(image)).astype(int) - got) <= 2).all()
    if mode in ("CMYK", "YCbCr", "HSV", "RGBX", "LAB"):
        tolerance = 24 if mode == "LAB" else 4  # 8 bits of L*a*b* are coarse
        assert (abs(got.astype(int) - np.asarray(plain(64, 48))) <= tolerance).all()


def test_a_picture_with_more_than_8_bits_keeps_its_depth() -> None:
    ramp = Image.open(BytesIO(grey_ramp_16()))
    for image in (ramp, ramp.convert("I"), ramp.convert("I").convert("F")):
        got = seen(prepare(image))
        assert len(np.unique(got)) > 200
        assert (abs(np.asarray(upright(image)).astype(int) - got) <= 1).all()


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_large_picture_keeps_its_profile(mode: str) -> None:
    profile = {"L": grey_profile(1.0), "RGB": swapped_profile(), "CMYK": cmyk_profile()}[mode]
    for side in (64, 1100):
        image = Image.new(mode, (side, side), {"L": 128, "RGB": RED, "CMYK": (255, 0, 0, 0)}[mode])  # type: ignore[arg-type]
        image.info["icc_profile"] = profile
        prepared = prepare(image)
        assert isinstance(prepared, Upload)
        assert "colours converted from the embedded profile to sRGB" in decode(prepared.data).notes


@pytest.mark.parametrize("profile", [b"", None, "text", 7, bytes((4 << 20) + 1)])
@pytest.mark.parametrize("mode", ["RGB", "CMYK", "P"])
def test_a_profile_that_the_service_would_not_use_stays_here(mode: str, profile: Any) -> None:
    for side in (64, 1100):
        image = plain(side, side).convert(mode)
        image.info["icc_profile"] = profile
        prepared = prepare(image)
        assert isinstance(prepared, Upload)
        assert len(prepared.data) < 3 << 20
        assert not [note for note in decode(prepared.data).notes if "profile" in note]


def test_one_transparent_colour_of_a_large_picture() -> None:
    image = Image.new("RGB", (1100, 1100), RED)
    image.info["transparency"] = RED
    assert (seen(prepare(image)) == 255).all()


def test_a_large_picture_of_wide_greys_is_compressed() -> None:
    image = Image.linear_gradient("L").resize((1200, 1200)).convert("F")
    prepared = prepare(image)
    assert isinstance(prepared, Upload)
    assert len(prepared.data) < 1 << 20


def files_that_pillow_decodes_otherwise() -> dict[str, bytes]:
    """Files whose pixels, decoded by Pillow, are not what they say."""
    greys = np.repeat(np.linspace(0, 65535, 256).astype(">u2")[None], 16, axis=0)
    return {
        "16-bit big-endian": encode(Image.frombytes("I;16B", (256, 16), greys.tobytes()), "TIFF"),
        "16-bit": grey_ramp_16("TIFF"),
        "long profile": png_with(
            chunk(b"iCCP", b"p\0\0" + zlib.compress(swapped_profile() + bytes(900_000))), image=plain()
        ),
    }


@pytest.mark.parametrize("name", files_that_pillow_decodes_otherwise())
def test_an_opened_file_is_sent_as_it_is_until_it_may_have_been_changed(name: str, tmp_path: Path) -> None:
    data = files_that_pillow_decodes_otherwise()[name]
    path = tmp_path / "picture"
    path.write_bytes(data)
    for source in (BytesIO(data), path):
        with Image.open(source) as image:
            assert prepare(image) == Upload(data)
            assert prepare(image) == Upload(data)
            image.load()
            again = prepare(image)
            assert again != Upload(data)
            assert (abs(seen(again).astype(int) - decode(data).image) <= 1).all()


def test_of_an_opened_file_other_pages_and_changes_are_not_lost(tmp_path: Path) -> None:
    pages = [Image.new("RGB", (40, 30), colour) for colour in (RED, (0, 0, 255))]
    data = encode(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    with Image.open(BytesIO(data)) as image:
        image.seek(1)
        assert (seen(prepare(image)) == (0, 0, 255)).all()
    profiled = encode(pages[0], "PNG", icc_profile=swapped_profile())
    with Image.open(BytesIO(profiled)) as image:
        del image.info["icc_profile"]
        assert (seen(prepare(image)) == RED).all()
    with Image.open(BytesIO(data)) as image:
        image.putpixel((0, 0), (1, 2, 3))
        assert tuple(seen(prepare(image))[0, 0]) == (1, 2, 3)
    path = tmp_path / "archive"
    path.write_bytes(encode(pages[1], "PNG") + encode(pages[0], "PNG"))
    with path.open("rb") as file:
        inner = ContainerIO(file, len(encode(pages[1], "PNG")), len(encode(pages[0], "PNG")))
        with Image.open(inner) as image:  # type: ignore[arg-type]
            assert (seen(prepare(image)) == RED).all()


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    for content in (encode(plain(), "WEBP"), encode(plain(), "HEIF"), b"", b"no image at all"):
        path = tmp_path / "a.jpg"
        path.write_bytes(content)
        assert prepare(path) == Upload(content)
        assert prepare(str(path)) == Upload(content)


def test_what_is_elsewhere_stays_there() -> None:
    for url in ("https://example.org/a.png", "http://example.org/a.png", "data:image/png;base64,AAAA"):
        assert prepare(url) == Link(url)
        scheme, colon, rest = url.partition(":")
        assert prepare(f" {scheme.upper()}{colon}{rest}\n") == Link(f"{scheme.upper()}{colon}{rest}")
    handle = ImageHandle(image_id="i1", width=5, height=7)
    assert prepare(handle) is handle
    assert size_of(handle) == (5, 7)
    for source in (handle, "https://example.org/a.png", "HTTPS://example.org/a.png"):
        with pytest.raises(ValueError, match="pass it"):
            upright(source)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jpg"):
        prepare("nowhere.jpg")


ALONE = """
import sys
from pointbox.pictures import Upload, size_of, upright
data = open(sys.argv[1], "rb").read()
if sys.argv[2] == "missing":
    sys.modules["pillow_heif"] = None
    try:
        upright(data)
    except OSError as error:
        print(error, size_of(Upload(data)))
else:
    print(upright(sys.argv[1]).size, size_of(Upload(data)))
"""


@pytest.mark.parametrize(
    ("installed", "said"),
    [("here", "(40, 100) (40, 100)"), ("missing", "pip install 'pointbox[heif]'. (0, 0)")],
)
def test_heic_is_drawn_on_where_its_reader_is_installed(installed: str, said: str, tmp_path: Path) -> None:
    """In a process of its own: elsewhere in these tests Pillow has learnt to read HEIC."""
    path = tmp_path / "a.heic"
    path.write_bytes(encode(plain().transpose(Image.Transpose.ROTATE_90), "HEIF"))
    ran = subprocess.run([sys.executable, "-c", ALONE, path, installed], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert said in ran.stdout


def test_heic_is_drawn_as_the_service_sees_it(tmp_path: Path) -> None:
    data = with_orientation(6, "HEIF")
    assert (abs(np.asarray(upright(data)).astype(int) - decode(data).image) <= 1).all()
