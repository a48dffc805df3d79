"""Keys and their use for the terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from app.access.keys import usable
from app.access.usage import DayOfUse
from app.db.models import ApiKey

_UNANSWERED = ("failed", "cancelled", "expired", "crashed")
_AMOUNTS = ("phrases", "input_tokens", "output_tokens")


def show_keys(rows: Sequence[ApiKey], as_json: bool) -> None:
    """One line a key."""
    if as_json:
        print(json.dumps([_key(row) for row in rows], indent=2))
        return
    table = _table("key", "tenant", "scopes", "rate/min", "at once", "expires", "state", "name")
    for row in rows:
        expires = row.expires_at.date() if row.expires_at else "never"
        limits = (row.rate_per_minute or "", row.concurrency or "")
        cells = (row.prefix, row.tenant, row.scopes, *limits, expires, _state(row), row.name)
        table.add_row(*map(str, cells))
    _show(table, "There are no keys.")


def show_usage(days: Sequence[DayOfUse], as_json: bool) -> None:
    """One line a day and key."""
    if as_json:
        print(json.dumps([_day(day) for day in days], indent=2))
        return
    table = _table("day", "tenant", "key", "answered", "not", "phrases", "tokens in", "tokens out")
    for day in days:
        unanswered = sum(day.numbers.get(outcome, 0) for outcome in _UNANSWERED)
        numbers = (day.numbers.get("completed", 0), unanswered, *(day.numbers.get(a, 0) for a in _AMOUNTS))
        table.add_row(*map(str, (day.day, day.tenant, day.prefix, *numbers)))
    _show(table, "Nothing was used.")


def _key(row: ApiKey) -> dict[str, Any]:
    return {
        "key": row.prefix,
        "id": row.id,
        "tenant": row.tenant,
        "name": row.name,
        "scopes": row.scopes.split(),
        "rate_per_minute": row.rate_per_minute,
        "concurrency": row.concurrency,
        "created": row.created_at.isoformat(),
        "expires": row.expires_at.isoformat() if row.expires_at else None,
        "state": _state(row),
    }


def _day(day: DayOfUse) -> dict[str, Any]:
    who = {"day": str(day.day), "tenant": day.tenant, "key": day.prefix}
    return who | {what: day.numbers.get(what, 0) for what in ("completed", *_UNANSWERED, *_AMOUNTS)}


def _state(row: ApiKey) -> str:
    return "revoked" if row.revoked_at else "works" if usable(row) else "expired"


def _table(*titles: str) -> Table:
    table = Table(*titles, box=None, pad_edge=False)
    for column in table.columns[:-1]:
        column.no_wrap = True
    return table


def _show(table: Table, nothing: str) -> None:
    if table.rows:
        Console().print(table)
    else:
        print(nothing)
