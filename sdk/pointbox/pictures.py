"""Every way in which a caller may have a picture, and how it travels.

Paths and bytes are sent as they are: the service reads more formats than Pillow does, and turns them upright.
Pictures in memory are encoded here; `docs/sdk.md` has the rules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct
from PIL import ExifTags, Image, ImageCms, ImageOps

from pointbox.addresses import is_for_service, path_of
from pointbox.encoding import encode, storable
from pointbox.opening import opened
from pointbox.originals import original

_WIDE_MODES = frozenset({"I", "F", "I;16"})


class ImageHandle(Struct, frozen=True, kw_only=True):
    """A picture that the service already has; ask about it as often as you like until it expires."""

    image_id: str
    width: int = 0
    """Of the upright image, in pixels."""
    height: int = 0
    expires_in_s: float = 0.0
    """Seconds after which an image that nobody asks about is forgotten."""


class SupportsArray(Protocol):
    """A numpy array, or anything that shows its memory the way numpy does: uint8, [height, width, 3], RGB."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


ImageSource: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | Image.Image | SupportsArray | ImageHandle
)
"""A path, the bytes of an image file, a PIL image, an RGB array, an http(s), data or file URL, a handle."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The bytes of an image file."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Link:
    """Where the service itself finds the image: an http(s) URL or a data URI."""

    url: str


Prepared: TypeAlias = Upload | Link | ImageHandle


def prepare(image: ImageSource) -> Prepared:
    """How `image` is sent. Reads files and encodes pictures, so it takes a while.

    Raises:
        OSError: the file cannot be read.
        TypeError, ValueError: this is not a picture; the message says what would be.
    """
    if isinstance(image, ImageHandle):
        return image
    if isinstance(image, str):
        return Link(image.strip()) if is_for_service(image) else Upload(path_of(image).read_bytes())
    if isinstance(image, os.PathLike):
        return Upload(Path(image).read_bytes())
    if isinstance(image, (bytes, bytearray, memoryview)):
        return Upload(bytes(image))
    if isinstance(image, Image.Image) and (data := original(image)) is not None:
        return Upload(data)
    return Upload(encode(in_memory(image)))


def is_one_picture(value: Any) -> bool:
    """Whether this, which can be iterated over, is a picture and no collection of pictures."""
    if hasattr(value, "__array_interface__"):
        return len(value.__array_interface__["shape"]) in (2, 3)
    return isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview, Image.Image, ImageHandle))


def in_memory(image: Image.Image | SupportsArray) -> Image.Image:
    """A PIL image as a viewer would show it: an orientation in its EXIF data is applied.

    Raises:
        TypeError, ValueError: not an image, an empty one, or an array of another type or shape.
    """
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise ValueError(f"An image of {image.width} x {image.height} pixels is not a picture.")
        return ImageOps.exif_transpose(image)
    if hasattr(image, "__array_interface__"):
        return _from_array(image)
    raise TypeError(
        f"{type(image).__name__} is not a picture: pass a path, the bytes of an image file, a PIL image, a "
        "uint8 RGB array, a URL or an image handle."
    )


def upright(image: ImageSource) -> Image.Image:
    """The picture in RGB as answers see it, for drawing: upright, transparency on white.

    Raises:
        OSError: Pillow cannot read it. ValueError: it is only with the service.
    """
    if isinstance(image, ImageHandle) or (isinstance(image, str) and is_for_service(image)):
        raise ValueError("The picture is not on this side: pass it, as draw(image).")
    if isinstance(image, (bytes, bytearray, memoryview)):
        data = bytes(image)
    elif isinstance(image, (str, os.PathLike)):
        data = (path_of(image) if isinstance(image, str) else Path(image)).read_bytes()
    else:
        return _rgb(in_memory(image))
    with opened(data) as picture:
        return _rgb(in_memory(picture))


def size_of(prepared: Prepared) -> tuple[int, int]:
    """Width and height of the upright image in pixels; (0, 0) where only the service can tell."""
    if isinstance(prepared, ImageHandle):
        return prepared.width, prepared.height
    if isinstance(prepared, Link):
        return 0, 0
    try:
        with opened(prepared.data) as image:
            turned = image.format != "TIFF" and image.getexif().get(ExifTags.Base.Orientation, 1) in (
                5,
                6,
                7,
                8,
            )
            return (image.height, image.width) if turned else image.size
    except Exception:  # damaged, or a format that this Pillow does not read: the service will say
        return 0, 0


def _from_array(array: SupportsArray) -> Image.Image:
    """RGB, RGBA or grey; no channel is swapped."""
    about = array.__array_interface__
    shape, kind = tuple(about["shape"]), str(about["typestr"])
    if kind != "|u1":
        raise TypeError(f"An array of type {kind} is not a picture: convert it to uint8, 0 to 255.")
    if not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4))) or 0 in shape:
        raise ValueError(
            f"An array of shape {shape} is not a picture: it needs [height, width, 3] in RGB order, "
            "[height, width, 4] in RGBA order, or [height, width] in grey."
        )
    return Image.fromarray(array)


def _rgb(picture: Image.Image) -> Image.Image:
    """With the service's rules for transparency and for more than 8 bits."""
    picture = storable(picture)
    if picture.mode in _WIDE_MODES:
        low, high = 0.0, 65535.0
        if picture.mode != "I;16":
            low, high = cast(tuple[float, float], picture.getextrema())
        scale = 255 / ((high - low) or 1)
        return picture.convert("F").point(lambda value: value * scale + -low * scale).convert("RGB")
    if picture.mode == "LAB":
        lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        converted = ImageCms.profileToProfile(picture, lab, srgb, outputMode="RGB")
        assert converted is not None
        return converted
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("RGB")
