"""Names of label files for tools that find an image's labels by its name without the ending."""

from __future__ import annotations

import posixpath
import unicodedata
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Label:
    """`name`: of the label file, without its ending; `image`: what the image must be called to go with it."""

    name: str
    image: str


class LabelNames:
    """Each image has a label file that no other image is taken for, on any file system.

    `a.jpg` and `a.png` would both have `a.txt`, on some systems `A.jpg` too: the label files of such images
    are named after the whole name, `a.png.txt`, and go with an image that is renamed to `a.png.png`. Count
    every image before asking for the first name.
    """

    def __init__(self) -> None:
        self._stems: Counter[str] = Counter()
        self._given: set[str] = set()

    def count(self, key: str) -> None:
        self._stems[_folded(posixpath.splitext(_plain(key))[0])] += 1

    def of(self, key: str) -> Label:
        """Once for each image, in a fixed order: names that are left depend on it."""
        plain = _plain(key)
        stem, ending = posixpath.splitext(plain)
        if self._stems[_folded(stem)] == 1:
            return Label(stem, plain)
        name, number = plain, 1
        while _folded(name) in self._stems or _folded(name) in self._given:
            number += 1
            name = f"{plain}-{number}"
        self._given.add(_folded(name))
        return Label(name, name + ending)


def _plain(key: str) -> str:
    """The key as a path that stays in its folder wherever the zip is unpacked."""
    parts = [part for part in key.replace("\\", "_").split("/") if part not in ("", ".")]
    return "/".join("_" if part == ".." else part for part in parts) or "_"


def _folded(name: str) -> str:
    """Equal for names that are one on a file system that ignores case, or how accents are composed."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
