"""Reading what a job wrote."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from app.jobs.errors import Damaged, NoSuchKey
from app.jobs.records import digest
from app.jobs.stores import Store

T = TypeVar("T", bound=msgspec.Struct)
PIECE_BYTES = 256 * 1024
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


def check_whole(target: Store, name: str, expected: str, count: int) -> None:
    """As `whole_lines`, reading the file in pieces of PIECE_BYTES and keeping none.

    Raises Damaged, StoreAway.
    """
    found, size, lines, last = hashlib.sha256(), 0, 0, b""
    try:
        length = target.size(name)
        while size < length and (piece := target.read(name, size, min(PIECE_BYTES, length - size))):
            found.update(piece)
            size, lines, last = size + len(piece), lines + piece.count(b"\n"), piece[-1:]
    except NoSuchKey as error:
        raise Damaged(f"{name} is gone from {target.url}: {AGAIN}") from error
    sealed = f"{size}-{found.hexdigest()}"
    if not (sealed == expected if expected else lines == count and last in (b"", b"\n")):
        raise Damaged(f"{name} in {target.url} does not hold what was written there")


def read_pieces(target: Store, name: str, lines: slice) -> Iterator[bytes]:
    """Some lines of a file in pieces of at most PIECE_BYTES, each read when it is asked for.

    Raises NoSuchKey, StoreAway; Damaged for a file that became shorter meanwhile.
    """
    size, position, line = target.size(name), 0, 0
    while position < size and line < lines.stop:
        piece = target.read(name, position, min(PIECE_BYTES, size - position))
        if not piece:
            raise Damaged(f"{name} in {target.url} became shorter while it was read")
        position += len(piece)
        begin = end = 0
        while line < lines.stop and (newline := piece.find(b"\n", end)) >= 0:
            end, line = newline + 1, line + 1
            if line == lines.start:
                begin = end
        if line < lines.stop:  # the last line goes on in the next piece
            end = len(piece)
        if line >= lines.start and begin < end:
            yield piece[begin:end]
