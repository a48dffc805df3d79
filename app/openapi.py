"""Pieces of the OpenAPI document that several subjects need."""

from __future__ import annotations

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Components, Example, SecurityScheme

from app.problems import KINDS, MEDIA_TYPE, Problem, ProblemError

ACCESS_PROBLEMS = ("unauthenticated", "forbidden", "rate-limited")
"""What every route below `/v1` can answer while keys are needed."""
SECURITY = Components(
    security_schemes={
        "bearer": SecurityScheme(type="http", scheme="bearer", description="`Authorization: Bearer KEY`"),
        "moondream": SecurityScheme(type="apiKey", name="X-Moondream-Auth", security_scheme_in="header"),
    }
)
"""The two ways to send a key."""


def problem_responses(*slugs: str) -> dict[int, ResponseSpec]:
    """The problem documents that a route can answer with: one response per status, one example per type."""
    by_status: dict[int, list[str]] = {}
    for slug in slugs:
        by_status.setdefault(KINDS[slug].status, []).append(slug)
    return {
        status: ResponseSpec(
            data_container=Problem,
            generate_examples=False,
            media_type=MEDIA_TYPE,
            description="; ".join(KINDS[slug].title for slug in group),
            examples=[Example(id=slug, summary=KINDS[slug].title, value=_example(slug)) for slug in group],
        )
        for status, group in by_status.items()
    }


def _example(slug: str) -> Problem:
    detail = f"{KINDS[slug].title}: one sentence says what was wrong."
    return ProblemError(slug, detail).document("0b9a3c6d2f8e4a519c7d")
