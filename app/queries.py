"""Query parameters of routes that declare theirs: others, and one given twice, are refused as in a body."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from app.problems import ProblemError

_GIVEN = {"request", "state"}


def only_known_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """A guard.  Raises ProblemError: invalid-request, with the parameter as its field."""
    known = set(handler.parsed_fn_signature.parameters) - _GIVEN - set(connection.path_params)
    seen: set[str] = set()
    for name, _ in parse_qsl(connection.scope["query_string"].decode("latin-1"), keep_blank_values=True):
        wrong = "is not known" if name not in known else "is given twice" if name in seen else ""
        if wrong:
            detail = f"The query parameter {name[:100]!r} {wrong}."
            raise ProblemError("invalid-request", detail, field=name[:100])
        seen.add(name)
