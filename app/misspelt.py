"""Environment variables that look like a setting and are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches

import structlog

from app.settings import PREFIX, Settings

CLIENT = ("URL", "API_KEY")
"""Settings of the SDK and of `pointbox jobs`, in the same environment."""
TOLD = PREFIX + "MISSPELT_TOLD"
"""Set by `serve` for its children: it has said so itself."""
_ALIKE = 0.75
_LENGTHS_APART = 2
"""More is another name: a cluster or a store may have variables that begin with ours."""

log = structlog.get_logger(__name__)


def misspelt(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that nothing reads, with the one that is probably meant."""
    known = [entry.name.upper() for entry in fields(Settings)] + list(CLIENT)
    meant: dict[str, str] = {}
    for variable in environ:
        name = variable.removeprefix(PREFIX)
        if name == variable or name in known:
            continue
        nearest = get_close_matches(name.upper(), known, n=1, cutoff=_ALIKE)
        if nearest and abs(len(nearest[0]) - len(name)) <= _LENGTHS_APART:
            meant[variable] = PREFIX + nearest[0]
    return meant


def warn_misspelt(environ: Mapping[str, str]) -> None:
    """One line of the log for each; their values are not told."""
    if environ.get(TOLD):
        return
    for variable, nearest in misspelt(environ).items():
        log.warning("an environment variable has no effect", variable=variable, did_you_mean=nearest)
