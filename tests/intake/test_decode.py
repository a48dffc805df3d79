"""Every row of docs/images.md that ends in a picture."""

from __future__ import annotations

import threading
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from app.intake.decode import decode
from app.intake.sniff import check
from tests.intake.pictures import (
    RED,
    WHITE,
    chunk,
    encode,
    grey_ramp_16,
    plain,
    with_orientation,
    ycck_jpeg,
)


def close(image: np.ndarray, expected: tuple[int, ...] | np.ndarray, tolerance: int = 6) -> bool:
    return bool(np.abs(image.astype(int) - np.asarray(expected)).max() <= tolerance)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "HEIF", "AVIF"])
def test_every_accepted_format(format: str) -> None:
    data = encode(plain(), format)
    decoded = decode(data)
    assert decoded.image.shape == (40, 100, 3)
    assert decoded.image.dtype == np.uint8
    assert (decoded.width, decoded.height) == (100, 40)
    assert close(decoded.image[8:12, 20:30], (255, 0, 0), 30)
    header = check(data)
    assert (header.format, header.width, header.height) == (format, 100, 40)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_and_known_before_decoding(format: str, orientation: int) -> None:
    data = with_orientation(orientation, format)
    decoded = decode(data)
    # The image an EXIF-aware viewer shows, by the definition of the tag: which corner row 0, column 0 is.
    upright = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: a.swapaxes(0, 1)[:, ::-1],
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: a.swapaxes(0, 1)[::-1],
    }[orientation](np.asarray(plain()))
    assert decoded.image.shape == upright.shape
    for y, x in ((4, 4), (4, -4), (-4, 4), (-4, -4)):
        assert close(decoded.image[y, x], upright[y, x], 30)
    header = check(data)
    assert (header.width, header.height) == (decoded.width, decoded.height)


def test_the_orientation_of_a_png_may_stand_behind_its_pixels() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(plain(), "PNG")
    data = data[:-12] + chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")) + data[-12:]
    assert (check(data).width, check(data).height) == (40, 100)
    assert decode(data).image.shape == (100, 40, 3)


def test_damaged_exif_is_no_reason_to_refuse() -> None:
    exif = b"Exif\0\0MM\0*" + b"\xff" * 40
    assert decode(encode(plain(), "JPEG", exif=exif)).image.shape == (40, 100, 3)


def test_adobe_cmyk_and_ycck_are_inverted_once() -> None:
    cmyk = encode(Image.new("RGB", (64, 48), RED).convert("CMYK"), "JPEG", quality=100)
    assert b"Adobe" in cmyk
    assert close(decode(cmyk).image, RED)
    assert close(decode(ycck_jpeg(RED)).image, RED)


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_clipped(format: str) -> None:
    decoded = decode(grey_ramp_16(format))
    assert close(decoded.image[:, :, 0], np.arange(256), 1)
    assert decoded.notes == ["16-bit grey scaled to 8 bits"]


def test_16_bit_big_endian_tiff() -> None:
    ramp = np.repeat(np.linspace(0, 65535, 256).astype(">u2")[None], 16, axis=0)
    image = Image.frombytes("I;16B", (256, 16), ramp.tobytes())
    assert close(decode(encode(image, "TIFF")).image[:, :, 1], np.arange(256), 1)


def test_wide_greys_are_stretched() -> None:
    ramp = np.repeat(np.linspace(-3.5, 9.0, 256, dtype=np.float32)[None], 16, axis=0)
    assert close(decode(encode(Image.fromarray(ramp), "TIFF")).image[:, :, 2], np.arange(256), 1)
    ramp[0, 0], ramp[1, 1] = np.nan, np.inf
    assert decode(encode(Image.fromarray(ramp), "TIFF")).image.shape == (16, 256, 3)
    flat = Image.fromarray(np.full((16, 16), 70_000, dtype=np.int32))
    assert close(decode(encode(flat, "TIFF")).image, (0, 0, 0))


def test_transparency_is_composited_on_white() -> None:
    for mode in ("RGBA", "LA"):
        image = Image.new("RGBA", (20, 10), (*RED, 255))
        image.paste((0, 0, 0, 0), (10, 0, 20, 10))
        half = Image.new("L", (20, 10), 255)
        half.paste(128, (0, 0, 5, 10))
        half.paste(0, (10, 0, 20, 10))
        image.putalpha(half)
        decoded = decode(encode(image.convert(mode), "PNG"))
        solid = decoded.image[0, 7].astype(float)
        assert close(decoded.image[:, 10:], WHITE, 0)
        assert close(decoded.image[0, 2], np.rint((solid * 128 + 255 * 127) / 255), 1)
        assert "transparency composited on white" in decoded.notes


def test_what_is_opaque_everywhere_gets_no_note() -> None:
    frames = [Image.new("RGB", (20, 10), RED), Image.new("RGB", (20, 10), (0, 0, 0))]
    sink = BytesIO()
    frames[0].save(sink, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    for data in (sink.getvalue(), encode(frames[0].convert("RGBA"), "PNG")):
        decoded = decode(data)
        assert decoded.notes == []
        assert close(decoded.image, RED, 0)


def test_palette_with_transparency_is_composited_on_white() -> None:
    image = Image.new("P", (20, 10), 1)
    image.putpalette([0, 0, 0, *RED])
    image.paste(0, (10, 0, 20, 10))
    for format in ("PNG", "GIF"):
        decoded = decode(encode(image, format, transparency=0))
        assert close(decoded.image[:, 10:], WHITE, 0)
        assert close(decoded.image[:, :10], RED, 0)


def test_one_grey_value_declared_transparent() -> None:
    grey = Image.new("L", (20, 10), 90)
    grey.paste(7, (10, 0, 20, 10))
    decoded = decode(encode(grey, "PNG", transparency=7))
    assert close(decoded.image[:, 10:], WHITE, 0)
    assert close(decoded.image[:, :10], (90, 90, 90), 0)
    wide = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    decoded = decode(encode(wide, "PNG", transparency=7 * 257))
    assert close(decoded.image[:, 10:], WHITE, 0)
    assert close(decoded.image[:, :10], (90, 90, 90), 0)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr"])
def test_other_modes(mode: str) -> None:
    decoded = decode(encode(plain().convert(mode), "TIFF"))
    assert decoded.image.shape == (40, 100, 3)
    assert close(decoded.image[-4, -4], WHITE, 8)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF", "AVIF"])
def test_animations_show_their_first_frame(format: str) -> None:
    frames = [Image.new("RGB", (32, 24), colour) for colour in (RED, (0, 0, 255), (0, 255, 0))]
    data = encode(frames[0], format, save_all=True, append_images=frames[1:])
    assert close(decode(data).image, RED, 12)


def test_a_phone_picture_that_is_an_mpo_shows_its_first_frame() -> None:
    data = encode(plain(), "MPO", save_all=True, append_images=[Image.new("RGB", (64, 64))])
    assert Image.open(BytesIO(data)).format == "MPO"
    assert decode(data).image.shape == (40, 100, 3)
    assert check(data).format == "JPEG"


def test_many_threads_at_once() -> None:
    files = [encode(plain(), format) for format in ("JPEG", "PNG", "WEBP", "AVIF", "HEIF", "TIFF")]
    alone = [decode(data).image for data in files]
    wrong: list[int] = []

    def work() -> None:
        for index, data in enumerate(files * 4):
            if not np.array_equal(decode(data).image, alone[index % len(files)]):
                wrong.append(index)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
