"""Odd phrases and odd files at the running service: right answers, in the frame of what was sent."""

from __future__ import annotations

import httpx
import pytest
from PIL import Image

from tests.app.asking import PHRASES, detect, detect_all
from tests.app.running import boxes, iou
from tests.intake.pictures import encode
from tests.intake.profiles import swapped_profile

ODD = [
    "<image>",
    "<loc0001>",
    "<|endoftext|>",
    "detect red circle ; star",
    "a\nb",
    "🦊🏴‍☠️",
    "שלום",
    "x" * 256,
    "</s>",
]


def test_odd_phrases_are_answered_and_echoed(client: httpx.Client, scene: bytes) -> None:
    answer = detect_all(client, scene, ODD)
    assert [phrase["object"] for phrase in answer["phrases"]] == ODD
    for box in boxes(answer):
        assert 0 <= box[0] < box[2] <= 1
        assert 0 <= box[1] < box[3] <= 1


def turned(scene: Image.Image) -> dict[str, bytes]:
    """All orientations of EXIF, the pixels stored the other way about."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    files = {}
    for orientation, how in undo.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = scene.transpose(how)
        files[f"turned {orientation}"] = encode(stored, "JPEG", quality=95, exif=exif)
    return files


def twins() -> dict[str, bytes]:
    """The scene as other files: each shows the very same upright picture, or nearly."""
    scene = Image.open("examples/scene.jpg").convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6
    other = scene.transpose(Image.Transpose.ROTATE_180)
    red, green, blue = scene.split()
    clear = scene.convert("RGBA")
    clear.putalpha(Image.new("L", scene.size, 255))
    return turned(scene) | {
        "png": encode(scene, "PNG"),
        "webp": encode(scene, "WEBP", lossless=True),
        "tiff": encode(scene, "TIFF"),
        "progressive jpeg": encode(scene, "JPEG", quality=90, progressive=True, subsampling=2),
        "phone's mpo": encode(scene, "MPO", quality=95, save_all=True, append_images=[other]),
        "bmp": encode(scene, "BMP"),
        "big tiff, lzw": encode(scene, "TIFF", compression="tiff_lzw", big_tiff=True),
        "another display's numbers": encode(
            Image.merge("RGB", (blue, green, red)), "PNG", icc_profile=swapped_profile()
        ),
        "animated webp": encode(scene, "WEBP", lossless=True, save_all=True, append_images=[other]),
        "animated png": encode(scene, "PNG", save_all=True, append_images=[other]),
        "palette": encode(scene.quantize(256, dither=Image.Dither.NONE), "PNG"),
        "turned png": encode(scene.transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif),
        "cmyk jpeg": encode(scene.convert("CMYK"), "JPEG", quality=95),
        "avif": encode(scene, "AVIF", quality=90),
        "heic": encode(scene, "HEIF", quality=90),
        "opaque rgba": encode(clear, "WEBP", lossless=True),
        "animated gif": encode(scene, "GIF", save_all=True, append_images=[other]),
    }


def test_odd_files_give_the_boxes_of_their_plain_twin(client: httpx.Client, scene: bytes) -> None:
    expected = detect_all(client, scene, PHRASES)
    for name, data in twins().items():
        answer = detect_all(client, data, PHRASES)
        assert answer["image"] == expected["image"], name
        for index in range(len(PHRASES)):
            for box in boxes(expected, index)[:1]:
                nearest = max((iou(box, other) for other in boxes(answer, index)), default=0)
                assert nearest >= 0.9, (name, PHRASES[index], nearest)


@pytest.mark.parametrize("size", [(900, 300), (300, 900), (512, 512), (3775, 1571), (799, 601)])
def test_boxes_are_in_the_frame_of_the_image_that_was_sent(
    client: httpx.Client, scene: bytes, size: tuple[int, int]
) -> None:
    """The model sees the same square whatever the shape: the way back must use the size of what was sent."""
    expected = detect(client, scene)
    stretched = encode(Image.open("examples/scene.jpg").resize(size), "PNG")
    found, pixels = detect(client, stretched), detect(client, stretched, units="pixels")
    assert (found["image"]["width"], found["image"]["height"]) == size
    assert iou(boxes(found)[0], boxes(expected)[0]) >= 0.9
    for corner, side in (("x_min", 0), ("y_min", 1), ("x_max", 0), ("y_max", 1)):
        fraction = found["objects"][0][corner]
        assert pixels["objects"][0][corner] == pytest.approx(fraction * size[side], abs=1e-2)
