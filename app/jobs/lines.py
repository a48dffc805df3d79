"""Reading what a job wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from app.jobs.errors import JobError, NoSuchKey
from app.jobs.stores import Store

T = TypeVar("T", bound=msgspec.Struct)
PIECE_BYTES = 256 * 1024
_AGAIN = "start another job"


def read_lines(target: Store, name: str, kind: type[T]) -> Iterator[T]:
    """The records of a file.  Raises JobError for one that is gone or damaged, StoreAway."""
    decoder = msgspec.json.Decoder(kind)
    try:
        for line in target.get(name)[0].splitlines():
            yield decoder.decode(line)
    except NoSuchKey as error:
        raise JobError(f"{name} is gone from {target.url}: {_AGAIN}") from error
    except msgspec.DecodeError as error:
        raise JobError(f"{name} in {target.url} is damaged ({error}): {_AGAIN}") from error


def read_pieces(target: Store, name: str, lines: slice) -> Iterator[bytes]:
    """Some lines of a file in pieces of at most PIECE_BYTES, each read when it is asked for.

    Raises NoSuchKey, StoreAway; JobError for a file that became shorter meanwhile.
    """
    size, position, line = target.size(name), 0, 0
    while position < size and line < lines.stop:
        piece = target.read(name, position, min(PIECE_BYTES, size - position))
        if not piece:
            raise JobError(f"{name} in {target.url} became shorter while it was read")
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
