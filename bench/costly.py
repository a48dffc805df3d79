"""A quiet tenant beside one that floods the service with pictures that are slow to decode."""

from __future__ import annotations

import asyncio
import io
import struct
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass

from PIL import Image

from bench.load import Client, Fate, watch_memory
from bench.overhead import jpeg
from bench.serving import Service, make_key, service
from bench.workloads import questions

SIDE = 8192
"""Pixels: as many as the service reads."""
FLOODERS = 20
"""Requests that the flooding tenant has open at a time."""
CALLERS = 2
"""The same of the quiet one."""
PAUSE_S = 0.5
"""How long a flooding caller waits after a refusal."""
PICTURES = 200


@dataclass(frozen=True, slots=True)
class Flood:
    """Times in milliseconds, memory is resident MB of all processes of the service.

    one_ms: of one request about the flood's picture, with nothing beside it: nearly all is decoding.
    alone_p95_ms, beside_p95_ms: of the quiet tenant.
    quiet, flood: what became of the requests beside each other.
    """

    kind: str
    kilobytes: float
    one_ms: float
    alone_p95_ms: float
    beside_p95_ms: float
    quiet: dict[Fate, int]
    flood: dict[Fate, int]
    memory_mb: float

    @property
    def bound_ms(self) -> float:
        """What the quiet tenant may notice: twice its own, and one decode."""
        return 2 * self.alone_p95_ms + self.one_ms

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"bound_ms": self.bound_ms}


def run(seconds: float, timeout_s: float, tell: Callable[[str], None]) -> list[Flood]:
    """Start the service with two tenants, flood it with each kind of picture for `seconds`, stop it."""
    asked = [(question.phrase, jpeg(question.image, 90)) for question in questions(PICTURES)]
    tell("the pictures")
    kinds = costly_pictures(SIDE)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"auth": "on", "data_dir": folder}
        keys = [make_key(tenant, settings) for tenant in ("flood", "quiet")]
        with service(**settings) as running:
            return asyncio.run(_measure(running, keys, asked, kinds, seconds, timeout_s, tell))


def costly_pictures(side: int) -> dict[str, bytes]:
    """One picture of each kind, square, of one colour."""
    flat = Image.new("RGB", (side, side), (200, 120, 40))
    options: dict[str, dict[str, object]] = {
        "JPEG": {},
        "PNG": {"compress_level": 1},
        "TIFF": {"compression": "tiff_lzw"},
        "GIF": {},
    }
    made = {}
    for kind, given in options.items():
        file = io.BytesIO()
        (flat.convert("P") if kind == "GIF" else flat).save(file, kind, **given)
        made[kind] = file.getvalue()
    made["PNG, RGBA of 16 bits"] = _deep_png(side)
    return made


def _deep_png(side: int) -> bytes:
    packed, row = zlib.compressobj(9), bytes(1 + 8 * side)
    pixels = b"".join(packed.compress(row) for _ in range(side)) + packed.flush()
    head = struct.pack(">IIBBBBB", side, side, 16, 6, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", pixels), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


async def _measure(
    running: Service,
    keys: list[str],
    asked: list[tuple[str, bytes]],
    kinds: dict[str, bytes],
    seconds: float,
    timeout_s: float,
    tell: Callable[[str], None],
) -> list[Flood]:
    floods = []
    quiet = Client(running.url, keys[1], timeout_s, asked)
    await quiet.closed(CALLERS, 2.0)
    for kind, picture in kinds.items():
        tell(f"a flood of {kind}")
        flood = Client(running.url, keys[0], timeout_s, [("red circle", picture)])
        one = await flood.ask()
        alone = await quiet.closed(CALLERS, seconds / 2)
        memory: list[float] = []
        watching = asyncio.create_task(watch_memory(running, memory))
        flooding = asyncio.create_task(flood.closed(FLOODERS, seconds, PAUSE_S))
        await asyncio.sleep(1.0)
        beside = await quiet.closed(CALLERS, seconds - 1.0)
        flooded = await flooding
        watching.cancel()
        flood.close()
        floods.append(
            Flood(
                kind=kind,
                kilobytes=len(picture) / 1e3,
                one_ms=one.ms,
                alone_p95_ms=alone.percentile(95),
                beside_p95_ms=beside.percentile(95),
                quiet=dict(Counter(ended.fate for ended in beside.ends)),
                flood=dict(Counter(ended.fate for ended in flooded.ends)),
                memory_mb=max(memory),
            )
        )
    quiet.close()
    return floods
