"""From an HTTP answer that is not a success to the exception that says why."""

from __future__ import annotations

import http
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from pointbox.errors import KINDS, APIError, Problem, RateLimited, Unavailable

# What proxies answer in the name of a service that they cannot reach or that is too busy.
_OF_PROXIES: Mapping[int, type[APIError]] = {
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def refusal(status: int, headers: Mapping[str, str], body: bytes, request_id: str) -> APIError:
    """The exception for an answer with a status other than 2xx; anything may be in its body."""
    retry_after = retry_after_of(headers.get("retry-after"))
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        problem = Problem()
    problem = msgspec.structs.replace(
        problem, status=status, request_id=problem.request_id or headers.get("x-request-id") or request_id
    )
    if problem.type.startswith("/problems/"):
        return of_problem(problem, retry_after)
    if not problem.detail:
        problem = msgspec.structs.replace(
            problem, title=problem.title or _phrase(status), detail=_detail(status, headers, body)
        )
    return _OF_PROXIES.get(status, APIError)(problem, retry_after)


def of_problem(problem: Problem, retry_after: float | None = None) -> APIError:
    """The exception for one of the service's own problem documents; of a newer service it may be unknown."""
    kind = KINDS.get(problem.type.removeprefix("/problems/"), APIError)
    return kind(problem, retry_after)


def retry_after_of(value: str | None) -> float | None:
    """Seconds from a Retry-After header: a number, or a date; None when there is none that makes sense."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    return max(seconds, 0.0) if seconds < float("inf") else None


def _detail(status: int, headers: Mapping[str, str], body: bytes) -> str:
    if 300 <= status < 400:
        target = headers.get("location", "another address")
        return f"The server redirects to {target}; set POINTBOX_URL to where the service really is."
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    return text or "The answer has no explanation; it may come from a proxy before the service."


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Unknown status"
