"""PNG: the chunks are walked once, and those whose damage does not concern the pixels are left out.

Pillow refuses the whole picture for a text chunk with a bad checksum. Viewers follow libpng, which ignores
ancillary chunks that are damaged, of a wrong length, repeated, or behind the pixels, where they mean nothing.
"""

from __future__ import annotations

import zlib
from struct import Struct

from PIL.PngImagePlugin import MAX_TEXT_CHUNK

from app.intake.colours import MAX_PROFILE_BYTES
from app.intake.directories import MAX_ENTRIES, count_entries
from app.intake.tidied import Tidied, too_many, without

MAX_METADATA_CHUNKS = 4_096
MAX_PIXEL_CHUNKS = 65_536
MAX_TEXT_BYTES = 8 << 20
"""Of all compressed text together, once it is inflated."""

_HEAD = Struct(">I4s")
_ANIMATION = frozenset({b"acTL", b"fcTL", b"fdAT"})
"""Only the still picture is read, so Pillow need not see these, nor refuse a picture for them."""
_SHORTEST = {b"gAMA": 4, b"cHRM": 32, b"pHYs": 9, b"sRGB": 1}
_ONCE_BEFORE_PIXELS = frozenset({b"iCCP", b"tRNS", *_SHORTEST})
_TEXT = frozenset({b"tEXt", b"zTXt", b"iTXt"})
_NAMES_OF_PILLOW = frozenset(
    {
        *(b"aspect", b"bbox", b"blend", b"chromaticity", b"default_image", b"disposal", b"dpi", b"duration"),
        *(b"exif", b"gamma", b"icc_profile", b"interlace", b"loop", b"srgb", b"transparency", b"xmp"),
    }
)
"""Keywords under which Pillow keeps what the other chunks say: a text so called would take its place."""
_GREY, _RGB, _PALETTE = 0, 2, 3
_TRNS_BYTES = {_GREY: 2, _RGB: 6}


def tidy(data: bytes) -> Tidied:
    """The PNG with only the metadata that Pillow can read. Undamaged files are not copied.

    Raises:
        ProblemError: there are too many chunks.
    """
    return _Walk(data).tidied()


class _Walk:
    """One pass over the chunks of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._view = memoryview(data)
        self._colour_type = data[25] if len(data) > 25 else _GREY
        self._palette_entries = 0
        self._pixels_seen = False
        self._seen: set[bytes] = set()
        self._text_room = MAX_TEXT_BYTES
        self._dropped: list[tuple[int, int]] = []
        self._blemished: dict[str, None] = {}
        self._profile_damaged = False
        self._profile: bytes | None = None

    def tidied(self) -> Tidied:
        """Walk, then tell."""
        self._walk()
        notes = ["unusable colour profile ignored"] if self._profile_damaged else []
        if self._blemished:
            notes.append(f"damaged or oversized metadata ignored ({', '.join(self._blemished)})")
        return Tidied(without(self._data, self._dropped), notes, self._profile)

    def _walk(self) -> None:
        at, size, pixels, others = 8, len(self._data), 0, 0
        while at + 8 <= size:
            length, kind = _HEAD.unpack_from(self._data, at)
            end = at + 12 + length
            if kind == b"IDAT":
                self._pixels_seen = True
                pixels += 1
            elif kind == b"IEND":
                return
            elif kind in _ANIMATION:
                pixels += 1
                self._dropped.append((at, min(end, size)))
            else:
                others += 1
                self._look(kind, at, end)
            if pixels > MAX_PIXEL_CHUNKS:
                raise too_many("PNG", "chunks of pixels", MAX_PIXEL_CHUNKS)
            if others > MAX_METADATA_CHUNKS:
                raise too_many("PNG", "chunks of metadata", MAX_METADATA_CHUNKS)
            at = end

    def _look(self, kind: bytes, at: int, end: int) -> None:
        """Decide about a chunk that is no pixels, from `at` to `end`."""
        ancillary = kind.isalpha() and kind[0] & 0x20
        if not ancillary and not (kind == b"PLTE" and self._colour_type != _PALETTE):
            self._palette_entries = (end - at - 12) // 3 if kind == b"PLTE" else self._palette_entries
            return
        if end > len(self._data):
            if self._pixels_seen:  # cut off where nothing but metadata was
                self._drop(kind, at, len(self._data))
            return
        body = self._view[at + 8 : end - 4]
        checksum = int.from_bytes(self._view[end - 4 : end], "big")
        if zlib.crc32(body, zlib.crc32(kind)) != checksum or not self._is_sound(kind, body):
            self._drop(kind, at, end)
        elif self._profile is not None and kind == b"iCCP":
            self._dropped.append((at, end))  # handed on beside the file
        elif kind in _TEXT and bytes(body[:80]).partition(b"\0")[0] in _NAMES_OF_PILLOW:
            self._dropped.append((at, end))
        self._seen.add(kind)

    def _drop(self, kind: bytes, at: int, end: int) -> None:
        self._dropped.append((at, end))
        if kind == b"iCCP":
            self._profile_damaged = True
        else:
            self._blemished[kind.decode()] = None

    def _is_sound(self, kind: bytes, body: memoryview) -> bool:
        """Whether the content of a chunk whose checksum is right can be used."""
        if kind in _ONCE_BEFORE_PIXELS and (self._pixels_seen or kind in self._seen):
            return False
        if len(body) < _SHORTEST.get(kind, 0):
            return False
        if kind == b"tRNS":
            return self._is_sound_transparency(len(body))
        if kind == b"iCCP":
            return self._is_sound_profile(bytes(body))
        if kind == b"eXIf":
            return count_entries(body) <= MAX_ENTRIES
        return kind not in (b"zTXt", b"iTXt") or self._is_sound_text(kind, bytes(body))

    def _is_sound_transparency(self, length: int) -> bool:
        if self._colour_type == _PALETTE:
            return 0 < length <= self._palette_entries
        return length == _TRNS_BYTES.get(self._colour_type)

    def _is_sound_profile(self, body: bytes) -> bool:
        """Keeps a profile that is longer than Pillow inflates."""
        _, nul, rest = body.partition(b"\0")
        if not nul or not rest or rest[0] != 0:
            return False
        profile = _inflated(rest[1:], MAX_PROFILE_BYTES + 1)
        if not profile or len(profile) > MAX_PROFILE_BYTES:
            return False
        if len(profile) >= MAX_TEXT_CHUNK:
            self._profile = profile
        return True

    def _is_sound_text(self, kind: bytes, body: bytes) -> bool:
        """Whether compressed text can be inflated, and is not too much."""
        rest = body.partition(b"\0")[2]
        if kind == b"iTXt":
            if rest[:1] in (b"", b"\0"):
                return True
            rest = b"\0" + rest[2:].split(b"\0", 2)[-1] if rest[1:2] == b"\0" else b"\1"
        if not rest:
            return True
        if rest[0] != 0 or self._text_room == 0:
            return False
        limit = min(self._text_room, MAX_TEXT_CHUNK)
        text = _inflated(rest[1:], limit)
        self._text_room -= len(text or b"")
        return text is not None and len(text) < limit


def _inflated(data: bytes, limit: int) -> bytes | None:
    """At most the first `limit` bytes; None if `data` is damaged."""
    try:
        return zlib.decompressobj().decompress(data, limit)
    except zlib.error:
        return None
