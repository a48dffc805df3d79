"""What a finished shard must hold, written beside it: a file that was emptied or cut is noticed."""

from __future__ import annotations

import hashlib

import msgspec

from app.jobs.errors import NoSuchKey
from app.jobs.records import JobSpec, Plan, ShardCount, to_document
from app.jobs.stores import Store


class Seal(ShardCount, frozen=True, kw_only=True):
    """`seals/N.json`, written before the results it is about.

    asked: stands for the job's spec and the images of the shard; another plan's results do not count.
    """

    asked: str


def seal_name(shard: int) -> str:
    return f"seals/{shard:05}.json"


def asked_of(spec: JobSpec, part: str) -> str:
    """Of a job and the digest of a shard's `plan/N.jsonl`."""
    return hashlib.sha256(msgspec.json.encode(spec) + part.encode()).hexdigest()


def seal(count: ShardCount, spec: JobSpec, part: str) -> bytes:
    return to_document(Seal(asked=asked_of(spec, part), **msgspec.structs.asdict(count)))


def read_seal(target: Store, shard: int) -> Seal | None:
    """None where there is none, or only a part of one.  Raises StoreAway."""
    try:
        return msgspec.json.decode(target.get(seal_name(shard))[0], type=Seal)
    except (NoSuchKey, msgspec.DecodeError):
        return None


def is_of(found: Seal, plan: Plan, shard: int) -> bool:
    """Whether a seal's results answer this plan."""
    return not plan.parts or found.asked == asked_of(plan.spec, plan.parts[shard])


def counted(found: Seal) -> ShardCount:
    """A seal without what it is bound to."""
    fields = msgspec.structs.asdict(found)
    del fields["asked"]
    return ShardCount(**fields)
