"""Buckets of many small pictures under names of all kinds, some of them none, and what a job owes them."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from PIL import Image

from app.jobs.stores import Store
from bench.workloads import questions
from tests.intake.pictures import png_claiming

PHRASE = "red circle"
NAMES = (
    "plain/{}.jpg",
    "with space/a b {}.jpg",
    "plus+/c+{}.jpg",
    "#/{}#.jpg",
    "50%/{}%20.jpg",
    "ünï 猫/ö {}.jpg",
    "q?x=1&y={}",
    "quo'te\"d/{}.JPG",
    "deep/er/and/deeper/{}.jpg",
    "{}",
)
FOLDED = ("a//b {}.jpg", "a/./b {}.jpg", "a/../c {}.jpg", "/d {}.jpg")
"""Names that some tools, SeaweedFS among them, make others of."""
MARKERS = ("", "marked/", "with space/", "ünï 猫/", "deep/er/")
"""Folder markers: objects without bytes whose names end in a slash."""


@dataclass(frozen=True)
class Filled:
    """The pictures that can be answered, and the keys of those that cannot."""

    good: dict[str, bytes]
    bad: frozenset[str]

    def check(self, results: Iterable[dict[str, Any]], errors: Iterable[dict[str, Any]]) -> None:
        """Every key that is no folder marker is there once, with a result or an error as it should be."""
        assert Counter(line["key"] for line in results) == Counter(self.good.keys())
        found = list(errors)
        assert Counter(line["key"] for line in found) == Counter(self.bad)
        assert {line["stage"] for line in found} == {"decode"}

    def sample(self, share: float = 0.05) -> dict[str, bytes]:
        """Some of the good ones, the same every time."""
        keys = random.Random(5).sample(sorted(self.good), max(5, round(share * len(self.good))))
        return {key: self.good[key] for key in keys}


def fill(
    client: Any, bucket: str, prefix: str, images: int, corrupt: int, names: tuple[str, ...] = NAMES
) -> Filled:
    """So many objects that are no folder markers, corrupt and five empty ones among them, and the markers."""
    drawn = pictures(images)
    keys = [names[number % len(names)].format(number) for number in range(images)]
    bad = random.Random(1).sample(range(images), corrupt + 5)
    damaged = {keys[number]: _damaged(drawn[number], kind) for kind, number in enumerate(bad[5:])}
    damaged |= {keys[number]: b"" for number in bad[:5]}
    good = {key: data for key, data in zip(keys, drawn, strict=True) if key not in damaged}

    def put(item: tuple[str, bytes]) -> None:
        client.put_object(Bucket=bucket, Key=prefix + item[0], Body=item[1])

    markers = [(name, b"") for name in MARKERS if prefix or name]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, [*markers, *good.items(), *damaged.items()]))
    return Filled(good, frozenset(damaged))


def pictures(count: int) -> list[bytes]:
    """JPEGs of a few plain shapes, all different, 160 to 320 pixels wide."""
    made = []
    for number, question in enumerate(questions(count)):
        file = io.BytesIO()
        width = 160 + number * 160 // count
        Image.fromarray(question.image).resize((width, 192)).save(file, "JPEG", quality=80)
        made.append(file.getvalue())
    return made


def records(target: Store, kind: str) -> Iterator[dict[str, Any]]:
    """The results or errors of all shards, in order."""
    for shard in sorted(entry.key for entry in target.within(kind).list()):
        for line in target.get(f"{kind}/{shard}")[0].splitlines():
            yield json.loads(line)


def _damaged(data: bytes, kind: int) -> bytes:
    """Something else each time: cut off, no picture at all, or one that claims to be too large."""
    kinds = (
        data[: len(data) // 2],
        data[:30],
        b"\0" * 100 + data,
        b"only words",
        b"%PDF-1.7\n" + data,
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89PNG\r\n\x1a\n",
        png_claiming(13_500, 13_500),
    )
    return kinds[kind % len(kinds)]
