"""The client of Pointbox, a distribution of its own: the command line alone uses it, where it needs it."""

from __future__ import annotations

from app.problems import ProblemError

try:
    import pointbox
except ModuleNotFoundError:
    raise ProblemError(
        "invalid-request", "This needs the client of Pointbox: pip install ./sdk in Pointbox's repository."
    ) from None

__all__ = ["pointbox"]
