"""Names that come from outside: lines of a manifest, keys, prefixes. They stay inside their store."""

from __future__ import annotations

import re

from app.jobs.errors import NoSuchKey

_SEPARATORS = re.compile(r"[/\\]")
"""The backslash, too: some servers take it for a separator."""


def inside(name: str) -> str:
    """The name, unchanged.

    What it names is not looked at: the same is raised whether something is there or not.

    Raises:
        NoSuchKey: the name is empty, is no text that can name a file, or leads out of the folder that it is
            relative to.
    """
    if not name:
        raise NoSuchKey("the name is empty")
    if "\0" in name:
        raise NoSuchKey("a name has no NUL")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise NoSuchKey("the name is not Unicode text") from None
    depth = 0
    for part in _SEPARATORS.split(name):
        if part == "..":
            depth -= 1
        elif part not in ("", "."):  # some servers fold these away
            depth += 1
        if depth < 0:
            raise NoSuchKey("the name leads out of its store")
    return name
