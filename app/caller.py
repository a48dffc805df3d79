"""Whose request this is. What a tenant owns (images, answers, places in the queue) is kept under its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from litestar import Request

ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, as far as its credentials tell."""

    tenant: str = ANONYMOUS


def caller(request: Request[Any, Any, Any]) -> Caller:
    """The caller that authentication left in the request's state; without it, everybody is `anonymous`."""
    return cast(Caller, request.scope["state"].get("caller", Caller()))
