"""What callers pass, checked before anything is sent: the errors name the argument and what it should be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

Phrases = str | Sequence[str]
MAX_PHRASES = 32
"""That one call can ask for."""


def text(name: str, value: object) -> str:
    """A string.  Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}.")
    return value


def name_of(what: str, value: object) -> str:
    """A string that is not empty.  Raises TypeError, ValueError."""
    if not text(what, value):
        raise ValueError(f"{what} must not be empty.")
    return str(value)


def id_of(what: str, value: object) -> str:
    """A string that can be one part of a path.  Raises TypeError, ValueError."""
    name = name_of(what, value)
    if "/" in name or name in (".", ".."):
        raise ValueError(f"{what} must be an id, not {name!r}.")
    return name


def whole(name: str, value: object, least: int) -> int:
    """A whole number that is not below `least`.  Raises TypeError, ValueError."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be a whole number, not {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, not {value}.")
    return int(value)


def seconds(name: str, value: object) -> float:
    """A finite time above 0.  Raises TypeError, ValueError."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a number of seconds greater than 0, not {value}.")
    return number


def real(name: str, value: object) -> float:
    """A number.  Raises TypeError."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, not {value!r}.")
    return float(value)


def region(value: object) -> list[float]:
    """Four numbers.  Raises TypeError, ValueError."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"region must be x_min, y_min, x_max, y_max, not {value!r}.")
    numbers = [real("Each number of region", number) for number in value]
    if len(numbers) != 4:
        raise ValueError(f"region must be x_min, y_min, x_max, y_max, not {len(numbers)} numbers.")
    return numbers


def places(value: object) -> list[list[float]]:
    """Points of two numbers and boxes of four.  Raises TypeError, ValueError."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"spatial_refs must be a list of points and boxes, not {value!r}.")
    found = []
    for place in value:
        if isinstance(place, str) or not isinstance(place, Iterable):
            raise TypeError(
                f"Each of spatial_refs must be x, y or x_min, y_min, x_max, y_max, not {place!r}."
            )
        numbers = [real("Each number of spatial_refs", number) for number in place]
        if len(numbers) not in (2, 4):
            raise ValueError(f"Each of spatial_refs must be two or four numbers, not {len(numbers)}.")
        found.append(numbers)
    return found


def phrases_of(phrases: Phrases) -> list[str]:
    """One phrase or many as a list.  Raises TypeError."""
    if isinstance(phrases, str):
        return [phrases]
    if isinstance(phrases, bytes | Mapping) or not isinstance(phrases, Iterable):
        raise TypeError(f"phrases must be a string or a list of strings, not {type(phrases).__name__}.")
    asked = list(phrases)
    for phrase in asked:
        if not isinstance(phrase, str):
            raise TypeError(f"A phrase is a string, not {type(phrase).__name__}.")
    return asked


def check_phrases(phrases: Sequence[str]) -> None:
    """Raises ValueError for phrases that no image can have an answer to."""
    if len(phrases) > MAX_PHRASES:
        raise ValueError(f"At most {MAX_PHRASES} phrases can be asked for at once, not {len(phrases)}.")
    if not all(map(str.strip, phrases)):
        raise ValueError("A phrase must not be blank.")


def given(options: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The options that are not None.

    Args:
        kind: the TypedDict that knows them all.

    Raises:
        TypeError: one is not known.
    """
    if unknown := options.keys() - kind.__annotations__.keys():
        known = ", ".join(kind.__annotations__)
        raise TypeError(f"The option {min(unknown)!r} is not known; there are {known}.")
    return {name: value for name, value in options.items() if value is not None}
