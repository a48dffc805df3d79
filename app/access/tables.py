"""Keys and their use for the terminal, or as JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from app.access.keys import usable
from app.access.usage import DayOfUse
from app.db.models import ApiKey

_NUMBERS = (
    "completed",
    "failed",
    "cancelled",
    "expired",
    "crashed",
    "phrases",
    "input_tokens",
    "output_tokens",
)


def show_keys(rows: Sequence[ApiKey], as_json: bool) -> None:
    """One line a key."""
    _show([_key(row) for row in rows], as_json, "There are no keys.")


def show_usage(days: Sequence[DayOfUse], as_json: bool) -> None:
    """One line a day and key."""
    counted = [
        {"day": str(day.day), "tenant": day.tenant, "key": day.prefix}
        | {what: day.numbers.get(what, 0) for what in _NUMBERS}
        for day in days
    ]
    _show(counted, as_json, "Nothing was used.")


def _key(row: ApiKey) -> dict[str, Any]:
    return {
        "key": row.prefix,
        "tenant": row.tenant,
        "name": row.name,
        "scopes": row.scopes,
        "rate_per_minute": row.rate_per_minute,
        "concurrency": row.concurrency,
        "created": _time(row.created_at),
        "expires": _time(row.expires_at),
        "state": "revoked" if row.revoked_at else "works" if usable(row) else "expired",
    }


def _time(at: datetime.datetime | None) -> str | None:
    return at.isoformat(timespec="seconds") if at else None


def _show(lines: list[dict[str, Any]], as_json: bool, nothing: str) -> None:
    if as_json:
        print(json.dumps(lines, indent=2))
        return
    if not lines:
        print(nothing)
        return
    table = Table(*lines[0])
    for line in lines:
        table.add_row(*("" if value is None else str(value) for value in line.values()))
    Console().print(table)
