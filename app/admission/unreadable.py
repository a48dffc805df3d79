"""Records in Redis that this version cannot read are left out: one must not stop what reads the others."""

from __future__ import annotations

from collections import Counter

import structlog
from msgspec import DecodeError

FAULTS = (DecodeError, KeyError, ValueError, TypeError)
"""What reading a record raises that is damaged, or of another version."""

READINGS: Counter[str] = Counter()
"""How often this process met such a record, by kind: worker, reply, inbox, request, answer, usage, failed."""

log = structlog.get_logger(__name__)


def skipped(kind: str, error: BaseException) -> None:
    """Counts it. The log has one line for each kind, since most are met again with every look."""
    READINGS[kind] += 1
    if READINGS[kind] == 1:
        log.error("a record in Redis cannot be read and is left out", kind=kind, error=repr(error)[:300])
