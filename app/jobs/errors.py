"""What can go wrong with a job as a whole; trouble with one image is a record instead."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot start or go on; the message is one line and says what to change."""


class StoreAway(Exception):
    """A store did not answer, or answered that it is busy: the same call may work later."""


class NoSuchKey(Exception):
    """The store has no such object, or does not let this caller read it."""
