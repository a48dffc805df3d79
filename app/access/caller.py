"""Who sent a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from litestar import Request
from litestar.types import Scope

SCOPES = ("infer", "jobs", "metrics")
"""What a key may allow: detect, point and images; batches over a bucket; `/metrics`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose work a request is. Whatever it makes belongs to the tenant, not to the key."""

    tenant: str
    key_id: str | None
    """None: authentication is off."""
    scopes: frozenset[str]


BOOTSTRAP_ID = "bootstrap"
"""The key id of `POINTBOX_BOOTSTRAP_KEY`, which is not in the database until it has been used."""
BOOTSTRAP_TENANT = "default"
ANONYMOUS = Caller("anonymous", None, frozenset(SCOPES))
"""Everyone, while authentication is off."""


def caller_of(request: Request[Any, Any, Any]) -> Caller:
    """The caller of a route that needs one; `Access` has put it there."""
    return cast(Caller, request.scope["state"]["caller"])


def remember(scope: Scope, caller: Caller) -> None:
    """Where `caller_of` finds it."""
    scope.setdefault("state", {})["caller"] = caller
