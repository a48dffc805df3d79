"""Every exception that leaves a handler becomes a problem document."""

from __future__ import annotations

import math
from typing import Any

import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

from app.admission.errors import AdmissionError
from app.correlation import request_id_of
from app.inference import ClientGone
from app.problems import MEDIA_TYPE, ProblemError
from app.strict_json import in_words

log = structlog.get_logger("pointbox.http")

_DISCONNECTED = "client disconnected prematurely"
_BY_STATUS = {
    401: ("unauthenticated", "Credentials are needed."),
    403: ("forbidden", "This is not allowed."),
    404: ("not-found", "There is no such route."),
    405: ("invalid-request", "This route does not take this method."),
    415: ("unsupported-media", "This content type is not read."),
    429: ("rate-limited", "Too many requests."),
}


def handlers() -> ExceptionHandlersMap:
    """For Litestar's `exception_handlers`; they replace its own documents on every route."""
    return {
        ProblemError: _problem,
        AdmissionError: _not_admitted,
        ValidationException: _wrong_parameter,
        HTTPException: _http_exception,
        ClientGone: _client_gone,
        Exception: _unexpected,
    }


def _problem(request: Request[Any, Any, Any], error: ProblemError) -> Response[Any]:
    return _response(request, error)


def _not_admitted(request: Request[Any, Any, Any], error: AdmissionError) -> Response[Any]:
    problem = ProblemError(error.problem, error.detail, retry_after_s=error.retry_after_s)
    return _response(request, problem)


def _http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    if error.detail == _DISCONNECTED:
        return _client_gone(request, error)
    if error.status_code >= 500:
        return _unexpected(request, error)
    if error.status_code == 413:
        return _response(request, _too_large(request))
    slug, detail = _BY_STATUS.get(error.status_code, ("invalid-request", f"{error.detail}."))
    problem = ProblemError(slug, detail, status=error.status_code)
    return _response(request, problem, dict(error.headers or {}))


def _wrong_parameter(request: Request[Any, Any, Any], error: ValidationException) -> Response[Any]:
    """Of a route that declares its parameters; forms that cannot be read are without `extra`."""
    if not isinstance(error.extra, list) or not error.extra:
        return _http_exception(request, error)
    wrong: Any = error.extra[0]
    detail = f"`{wrong['key']}` {in_words(wrong['message'])}."
    return _response(request, ProblemError("invalid-request", detail, field=wrong["key"]))


def _too_large(request: Request[Any, Any, Any]) -> ProblemError:
    limit, sent = request.app.request_max_body_size, request.headers.get("content-length", "")
    has = f"The body has {int(sent):,} bytes" if sent.isdecimal() else "The body is longer"
    detail = f"{has}; this server reads at most {limit:,}. Send a smaller image."
    return ProblemError("image-too-large", detail, field="image")


def _client_gone(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Nobody reads this; the status is for the log."""
    return Response(b"", status_code=499)


def _unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    log.error("unexpected", exc_info=error)
    return _response(request, ProblemError("internal", "Something went wrong here; the log has the details."))


def _response(
    request: Request[Any, Any, Any], problem: ProblemError, headers: dict[str, str] | None = None
) -> Response[Any]:
    headers = headers or {}
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    if problem.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(problem.retry_after_s)))
    return Response(
        problem.document(request_id_of(request)),
        media_type=MEDIA_TYPE,
        status_code=problem.status,
        headers=headers,
    )
