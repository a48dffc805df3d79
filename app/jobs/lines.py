"""Reading what a job wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from app.jobs.errors import Damaged, NoSuchKey
from app.jobs.records import digest
from app.jobs.stores import Store

T = TypeVar("T", bound=msgspec.Struct)
AGAIN = "start another job"


def read_file(target: Store, name: str) -> bytes:
    """Raises Damaged for a file that is gone, StoreAway."""
    try:
        return target.get(name)[0]
    except NoSuchKey as error:
        raise Damaged(f"{name} is gone from {target.url}: {AGAIN}") from error


def decoded(target: Store, name: str, data: bytes, kind: type[T]) -> Iterator[T]:
    """The records of a file.  Raises Damaged."""
    decoder = msgspec.json.Decoder(kind)
    try:
        for line in data.splitlines():
            yield decoder.decode(line)
    except msgspec.DecodeError as error:
        raise Damaged(f"{name} in {target.url} is damaged ({error}): {AGAIN}") from error


def whole_lines(target: Store, name: str, expected: str, count: int) -> list[bytes]:
    """The lines of a file that was written with this digest; empty: by a version that kept only their number.

    Raises Damaged, StoreAway.
    """
    data = read_file(target, name)
    lines = data.splitlines(keepends=True)
    whole = digest(data) == expected if expected else len(lines) == count and data[-1:] in (b"", b"\n")
    if not whole:
        raise Damaged(f"{name} in {target.url} does not hold what was written there")
    return lines
