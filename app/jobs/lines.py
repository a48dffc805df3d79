"""Reading what a job wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from app.jobs.errors import JobError, NoSuchKey
from app.jobs.stores import Store

T = TypeVar("T", bound=msgspec.Struct)
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
