"""What may be asked for in words: the same rule over HTTP and on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from app.problems import ProblemError
from app.spatial.schemas import MAX_PHRASE_CHARS, MAX_PHRASES


def check_phrases(phrases: Sequence[str], *, field: str) -> list[str]:
    """The phrases, unchanged.

    Raises:
        ProblemError: invalid-phrase for a blank or overlong one, invalid-request for too many.
    """
    if not 1 <= len(phrases) <= MAX_PHRASES:
        detail = f"Between 1 and {MAX_PHRASES} phrases can be asked for at once, not {len(phrases)}."
        raise ProblemError("invalid-request", detail, field=field)
    for phrase in phrases:
        if not phrase.strip():
            raise ProblemError("invalid-phrase", "A phrase must not be blank.", field=field)
        if len(phrase) > MAX_PHRASE_CHARS:
            detail = f"A phrase has at most {MAX_PHRASE_CHARS} characters; this one has {len(phrase)}."
            raise ProblemError("invalid-phrase", detail, field=field)
    return list(phrases)
