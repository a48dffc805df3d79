"""What can go wrong with a job as a whole; trouble with one image is a record instead."""

from __future__ import annotations


class JobError(Exception):
    """The job cannot start or go on; the message is one line and says what to change."""


class Damaged(JobError):
    """A file that a job wrote is gone, cut or changed: what it held can be computed again."""


class ShardsDamaged(Damaged):
    """`shards`: the numbers of those whose results or errors do not hold what was written."""

    def __init__(self, where: str, shards: list[int]) -> None:
        some = ", ".join(map(str, shards[:10])) + (", ..." if len(shards) > 10 else "")
        super().__init__(f"results in {where} are damaged again and again, in the shards {some}")
        self.shards = shards


class StoreAway(Exception):
    """A store did not answer, or answered that it is busy: the same call may work later."""


class NoSuchKey(Exception):
    """The store has no such object, or does not let this caller read it."""
