"""Problems of images that cannot be read, in words about the file and not about the library that failed."""

from __future__ import annotations

from PIL import UnidentifiedImageError

from app.intake.formats import SPELLED
from app.problems import ProblemError

_EARLY = ("truncat", "not enough", "end of file", "end-of-file", "premature", "cut off", "unexpected end")


class EndsEarlyError(Exception):
    """There are fewer rows of pixels than the header says."""


def not_read(format: str, kind: str) -> ProblemError:
    """The problem for an intact image of an accepted format that is of a kind that is not read.

    Args:
        format: as Pillow spells it.
        kind: what it is, such as "float64, 5 samples".
    """
    detail = (
        f"This kind of {SPELLED[format]} ({kind}) is not read. "
        "Send it as a JPEG or PNG with 8 bits per sample."
    )
    return ProblemError("unsupported-media", detail, field="image")


def damaged(format: str, error: Exception) -> ProblemError:
    """The problem for bytes that start like an image of `format` and cannot be decoded."""
    detail = f"The {SPELLED[format]} data is damaged or truncated: {_reason(error)}."
    return ProblemError("invalid-image", detail, field="image")


def _reason(error: Exception) -> str:
    """What decoders say varies, and holds names and addresses of their own: only its gist is repeated."""
    if isinstance(error, EndsEarlyError):
        return "it has fewer rows of pixels than its header says"
    text = str(error).lower()
    if isinstance(error, EOFError) or any(word in text for word in _EARLY):
        return "the data ends early"
    if isinstance(error, (SyntaxError, UnidentifiedImageError)):
        return "its header cannot be read"
    return "its pixels cannot be decoded"
