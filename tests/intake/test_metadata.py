"""A picture whose metadata is damaged is the same picture; damage of the pixels is an error."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import MAX_TEXT_CHUNK

from app.intake.containers import tidy
from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake import containers as made
from tests.intake.pictures import RED, chunk, encode, plain, with_orientation
from tests.intake.profiles import rgb_profile, swapped_profile

IGNORED = "damaged or oversized metadata ignored ({})"
NO_PROFILE = "unusable colour profile ignored"
PROFILE = b"a profile\0\0" + zlib.compress(rgb_profile(gamma=1.0))
"""Makes everything brighter where it is used."""
HALF_A_MEBIBYTE = zlib.compress(bytes(1 << 19))
TOO_LONG = zlib.compress(bytes(MAX_TEXT_CHUNK + 1))
SAME = np.asarray(plain())

PNG_BLEMISHES: dict[str, tuple[bytes, str]] = {
    "iCCP, checksum": (made.bad_checksum(b"iCCP", PROFILE), NO_PROFILE),
    "iCCP, method": (chunk(b"iCCP", PROFILE.replace(b"\0\0", b"\0\1", 1)), NO_PROFILE),
    "iCCP, no name": (chunk(b"iCCP", b"name"), NO_PROFILE),
    "iCCP, only a name": (chunk(b"iCCP", b"name\0"), NO_PROFILE),
    "iCCP, empty": (chunk(b"iCCP", b""), NO_PROFILE),
    "iCCP, not deflated": (chunk(b"iCCP", b"name\0\0 not deflated"), NO_PROFILE),
    "iCCP, over 4 MiB": (chunk(b"iCCP", b"n\0\0" + zlib.compress(bytes((4 << 20) + 1))), NO_PROFILE),
    "tEXt, checksum": (made.bad_checksum(b"tEXt", b"a\0b"), IGNORED.format("tEXt")),
    "zTXt, method": (chunk(b"zTXt", b"a\0\1b"), IGNORED.format("zTXt")),
    "zTXt, too long": (chunk(b"zTXt", b"a\0\0" + TOO_LONG), IGNORED.format("zTXt")),
    "iTXt, too long": (chunk(b"iTXt", b"a\0\1\0en\0a\0" + TOO_LONG), IGNORED.format("iTXt")),
    "zTXt, too much": (chunk(b"zTXt", b"a\0\0" + HALF_A_MEBIBYTE) * 140, IGNORED.format("zTXt")),
    "tRNS, too short": (chunk(b"tRNS", b"\0\xff\0"), IGNORED.format("tRNS")),
    "tRNS, too long": (chunk(b"tRNS", b"\0\xff\0\0\0\0\0\0"), IGNORED.format("tRNS")),
    "tRNS, checksum": (made.bad_checksum(b"tRNS", b"\0\xff\0\0\0\0"), IGNORED.format("tRNS")),
    "pHYs, too short": (chunk(b"pHYs", b"\0\0\1"), IGNORED.format("pHYs")),
    "gAMA, too short": (chunk(b"gAMA", b"\0"), IGNORED.format("gAMA")),
    "cHRM, too short": (chunk(b"cHRM", bytes(31)), IGNORED.format("cHRM")),
    "sRGB, empty": (chunk(b"sRGB", b""), IGNORED.format("sRGB")),
    "eXIf, checksum": (made.bad_checksum(b"eXIf", made.exif(6)[6:]), IGNORED.format("eXIf")),
    "unknown, checksum": (made.bad_checksum(b"teSt", b"abc"), IGNORED.format("teSt")),
    "PLTE of a picture without": (made.bad_checksum(b"PLTE", bytes(6)), IGNORED.format("PLTE")),
}


@pytest.mark.parametrize("name", PNG_BLEMISHES)
def test_blemishes_of_png_are_left_out(name: str) -> None:
    added, note = PNG_BLEMISHES[name]
    for behind in (False, True):
        data = made.png_with(added, behind=behind)
        found = decode(data)
        assert (found.image == SAME).all()
        assert found.notes == [note]
        assert (check(data).width, check(data).height) == (100, 40)


@pytest.mark.parametrize("kind", ["bbox", "interlace", "transparency", "icc_profile", "default_image"])
def test_a_text_does_not_take_the_place_of_what_other_chunks_say(kind: str) -> None:
    text = chunk(b"tEXt", kind.encode() + b"\0(0, 0, 0)")
    for behind in (False, True):
        found = decode(made.png_with(text, behind=behind))
        assert (found.image == SAME).all()
        assert found.notes == []


@pytest.mark.parametrize(
    "added",
    [chunk(b"tRNS", b"\0\xff\0\0\0\0"), chunk(b"iCCP", PROFILE), chunk(b"gAMA", bytes(4))],
)
def test_what_belongs_before_the_pixels_means_nothing_behind_them(added: bytes) -> None:
    found = decode(made.png_with(added, behind=True))
    assert (found.image == SAME).all()
    assert len(found.notes) == 1


def test_of_chunks_that_may_come_once_the_first_counts() -> None:
    red, black = chunk(b"tRNS", b"\0\xff\0\0\0\0"), chunk(b"tRNS", bytes(6))
    found = decode(made.png_with(red, black))
    assert (found.image[0, 0] == 255).all()
    assert found.notes == [IGNORED.format("tRNS"), "transparency composited on white"]


@pytest.mark.parametrize("entries", [0, 3, 300])
def test_transparency_of_a_palette_of_another_length(entries: int) -> None:
    image = Image.new("P", (40, 30), 1)
    image.putpalette([0, 0, 0, *RED])
    found = decode(made.png_with(chunk(b"tRNS", bytes(entries)), image=image))
    assert (found.image == RED).all()
    assert found.notes == [IGNORED.format("tRNS")]


def test_a_png_that_is_cut_off_behind_its_pixels() -> None:
    whole = made.png_with(chunk(b"tEXt", b"Comment\0" + b"hello " * 20), behind=True)
    at = whole.index(b"Comment")
    found = decode(whole[: at + 12])
    assert (found.image == SAME).all()
    assert found.notes == [IGNORED.format("tEXt")]


@pytest.mark.parametrize("body", [b"", struct.pack(">II", 3, 0), struct.pack(">II", 0, 0)])
@pytest.mark.parametrize("sequence", [0, 7])
def test_an_animation_that_is_damaged_shows_its_still_picture(body: bytes, sequence: int) -> None:
    frame = struct.pack(">IIIIIHHBB", sequence, 300, 300, 0, 0, 1, 10, 0, 0)
    data = made.png_with(chunk(b"acTL", body), chunk(b"fcTL", frame[: 26 - sequence]))
    data = data[:-12] + chunk(b"fdAT", b"\0\0\0\5" + zlib.compress(bytes(9))) + data[-12:]
    assert (decode(data).image == SAME).all()


@pytest.mark.parametrize("size", [900_000, MAX_TEXT_CHUNK, 2_000_000, 4 << 20])
@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_long_profiles_are_used(format: str, size: int) -> None:
    profile = swapped_profile().ljust(size, b"\0")
    profile = struct.pack(">I", size) + profile[4:]
    image = Image.new("RGB", (32, 24), RED)
    if format == "PNG":
        data = made.png_with(chunk(b"iCCP", b"long\0\0" + zlib.compress(profile)), image=image)
    else:
        pieces = [profile[at : at + 65_000] for at in range(0, size, 65_000)]
        about = [b"ICC_PROFILE\0" + bytes((number + 1, len(pieces))) for number in range(len(pieces))]
        whole = [made.segment(0xE2, each + piece) for each, piece in zip(about, pieces, strict=True)]
        data = made.jpeg_with(*whole, image=image)
    found = decode(data)
    assert np.abs(found.image.astype(int) - (RED[2], RED[1], RED[0])).max() <= 6
    assert found.notes == ["colours converted from the embedded profile to sRGB"]


JPEG_BLEMISHES: dict[str, tuple[bytes, str]] = {
    "JFIF, its name only": (made.segment(0xE0, b"JFIF"), IGNORED.format("APP0")),
    "JFIF, too short": (made.segment(0xE0, b"JFIF\0\1"), IGNORED.format("APP0")),
    "Adobe, its name only": (made.segment(0xEE, b"Adobe"), IGNORED.format("APP14")),
    "Adobe, too short": (made.segment(0xEE, b"Adobe\0d\0\0"), IGNORED.format("APP14")),
    "Photoshop, cut": (made.segment(0xED, made.PHOTOSHOP[:20]), IGNORED.format("APP13")),
    "profile without a number": (made.segment(0xE2, b"ICC_PROFILE\0"), IGNORED.format("APP2")),
    "profile, one of two": (made.segment(0xE2, b"ICC_PROFILE\0\1\2" + rgb_profile()), NO_PROFILE),
    "EXIF of too many entries": (made.segment(0xE1, made.exif_with(4_097)), IGNORED.format("APP1")),
    "EXIF in too many pieces": (made.segment(0xE1, made.exif(6)) * 17, IGNORED.format("APP1")),
}


@pytest.mark.parametrize("name", JPEG_BLEMISHES)
def test_blemishes_of_jpeg_are_left_out(name: str) -> None:
    added, note = JPEG_BLEMISHES[name]
    data = made.jpeg_with(added)
    found = decode(data)
    assert (found.image == decode(made.jpeg_with()).image).all()
    assert found.notes == [note]
    assert (check(data).width, check(data).height) == (100, 40)


def test_segments_without_any_content() -> None:
    empty = [bytes((0xFF, marker, 0, length)) for marker in range(0xE0, 0xF0) for length in (2, 1, 0)]
    assert decode(made.jpeg_with(*empty)).image.shape == (40, 100, 3)


def test_a_blemish_takes_nothing_else_away() -> None:
    sideways = with_orientation(6)
    assert decode(sideways[:2] + made.segment(0xEE, b"Adobe") + sideways[2:]).image.shape == (100, 40, 3)
    sideways = with_orientation(6, "PNG")
    at = sideways.index(b"IDAT") - 4
    found = decode(sideways[:at] + made.bad_checksum(b"tEXt", b"a\0b") + sideways[at:])
    assert found.image.shape == (100, 40, 3)
    assert len(found.notes) == 2


@pytest.mark.parametrize("format", ["PNG", "WEBP"])
def test_exif_of_too_many_entries_is_left_out(format: str) -> None:
    found = decode(encode(plain(), format, exif=made.exif_with(5_000)))
    assert found.image.shape == (40, 100, 3)
    assert found.notes == [IGNORED.format("eXIf" if format == "PNG" else "EXIF")]
    assert decode(encode(plain(), format, exif=made.exif_with(500))).image.shape == (100, 40, 3)


def test_undamaged_files_are_not_copied() -> None:
    for data in (made.png(_with_metadata()), made.jpeg(*_jpeg_with_metadata()), encode(plain(), "GIF")):
        format = {b"\x89": "PNG", b"\xff": "JPEG", b"G": "GIF"}[data[:1]]
        tidied = tidy(format, data)
        assert tidied.data is data
        assert not tidied.notes


def _with_metadata() -> list[made.Part]:
    parts = made.png_parts(encode(plain(), "PNG"))
    still = [part for part in made.every_chunk() if part[0] not in (b"acTL", b"fcTL")]
    return [parts[0], *still, *parts[1:]]


def _jpeg_with_metadata() -> tuple[list[made.Part], bytes]:
    parts, rest = made.jpeg_parts(encode(plain(), "JPEG"))
    return [*made.every_segment(), *(part for part in parts if part[0] < b"\xe0")], rest


PIXELS_DAMAGED: dict[str, Callable[[], bytes]] = {
    "IHDR, checksum": lambda: _edited(b"IHDR", -1),
    "IHDR, bit depth": lambda: _edited(b"IHDR", 8, repair=True),
    "IDAT, content": lambda: _edited(b"IDAT", 10),
    "PLTE of a palette picture, checksum": lambda: _edited(b"PLTE", -1, "P"),
    "JPEG frame": lambda: encode(plain(), "JPEG").replace(b"\xff\xc0\0\x11\x08", b"\xff\xc0\0\x11\x07"),
    "JPEG tables": lambda: encode(plain(), "JPEG").replace(b"\xff\xc4\0", b"\xff\xc4\x09"),
    "half a JPEG": lambda: encode(plain(), "JPEG")[:-400],
    "half a PNG": lambda: encode(plain(), "PNG")[:-60],
}


@pytest.mark.parametrize("name", PIXELS_DAMAGED)
def test_damage_of_the_pixels_is_an_error(name: str) -> None:
    with pytest.raises(ProblemError) as caught:
        decode(PIXELS_DAMAGED[name]())
    assert (caught.value.slug, caught.value.status) == ("invalid-image", 422)


def _edited(kind: bytes, offset: int, mode: str = "RGB", *, repair: bool = False) -> bytes:
    """A PNG with one byte of a chunk changed; an offset of -1 is the last of its checksum."""
    parts = made.png_parts(encode(plain().convert(mode), "PNG"))
    data = bytearray(made.png(parts))
    at = data.index(kind)
    length = int.from_bytes(data[at - 4 : at], "big")
    data[at + 4 + (length + 3 if offset < 0 else offset)] ^= 0x55
    if repair:
        struct.pack_into(">I", data, at + 4 + length, zlib.crc32(data[at : at + 4 + length]))
    return bytes(data)


def _changed(chance: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    how = chance.choice(("cut", "bytes", "bits", "longer", "empty"))
    if how == "cut":
        del changed[chance.randrange(len(changed) + 1) :]
    elif how == "longer":
        changed += chance.randbytes(chance.randrange(1, 40))
    elif how == "empty":
        changed.clear()
    else:
        for _ in range(min(len(changed), chance.choice((1, 2, 8)))):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 255, chance.randrange(256)))
    return bytes(changed)


@pytest.mark.parametrize("mode", ["RGB", "P", "L", "RGBA", "LA", "1", "I;16"])
def test_whatever_metadata_says_a_png_is_a_picture(mode: str) -> None:
    chance = random.Random(mode)
    image = plain().convert("L").convert("I;16") if mode == "I;16" else plain().convert(mode)
    parts = made.png_parts(encode(image, "PNG", **({"transparency": 0} if mode in ("P", "L", "1") else {})))
    first = next(index for index, (kind, _) in enumerate(parts) if kind == b"IDAT")
    for _ in range(300):
        added = chance.sample(made.every_chunk(), chance.randrange(1, 8))
        added = [(kind, _changed(chance, body) if chance.random() < 0.6 else body) for kind, body in added]
        head = [(kind, _changed(chance, body) if kind == b"tRNS" else body) for kind, body in parts[:first]]
        split = chance.randrange(len(added) + 1)
        data = made.png([*head, *added[:split], *parts[first:-1], *added[split:], parts[-1]])
        assert sorted(decode(data).image.shape) == [3, 40, 100]


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_whatever_metadata_says_a_jpeg_is_a_picture(mode: str) -> None:
    chance = random.Random(mode)
    parts, rest = made.jpeg_parts(encode(plain().convert(mode), "JPEG"))
    mpo, _ = made.jpeg_parts(encode(plain(), "MPO", save_all=True, append_images=[plain()]))
    own = [part for part in parts if part[0] < b"\xe0"]
    metadata = [*made.every_segment(), (b"\xee", b"Adobe\0d\0\0\0\0\0"), *(p for p in mpo if p[0] == b"\xe2")]
    for _ in range(500):
        added = chance.sample(metadata, chance.randrange(1, 8))
        added = [(kind, _changed(chance, body) if chance.random() < 0.6 else body) for kind, body in added]
        assert sorted(decode(made.jpeg([*added, *own], rest)).image.shape) == [3, 40, 100]
