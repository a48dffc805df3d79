"""Some results of a job and their pictures, for people who want to see how it goes."""

from __future__ import annotations

from io import BytesIO

import msgspec
from PIL import Image

from app.intake.decode import decode
from app.jobs.errors import Damaged, NoSuchKey
from app.jobs.lines import whole_lines
from app.jobs.planning import read_items
from app.jobs.records import Result, ShardCount
from app.jobs.shards import results_name
from app.jobs.stores import Store
from app.problems import ProblemError

SIDE = 1024
"""Of the pictures, in pixels: the longer side at most."""
_RESULTS = msgspec.json.Decoder(Result)


def spread(done: dict[int, ShardCount], limit: int) -> list[tuple[int, int]]:
    """Shard and line of up to `limit` results, evenly over all of those shards."""
    held = {shard: count.images - count.errors for shard, count in done.items()}
    total = sum(held.values())
    picks = min(limit, total)
    wanted = [(2 * pick + 1) * total // (2 * picks) for pick in range(picks)]  # the middle of each part
    found, before = [], 0
    for shard, results in held.items():
        found += [(shard, place - before) for place in wanted if before <= place < before + results]
        before += results
    return found


def read_results(target: Store, places: list[tuple[int, int]], done: dict[int, ShardCount]) -> list[Result]:
    """The results at these places; each shard is read once.  Raises Damaged, StoreAway."""
    lines = {shard: _lines(target, shard, done[shard]) for shard in {s for s, _ in places}}
    try:
        return [_RESULTS.decode(lines[shard][line]) for shard, line in places]
    except (IndexError, msgspec.DecodeError) as error:
        raise Damaged(f"{target.url} does not hold the results that were written there") from error


def _lines(target: Store, shard: int, count: ShardCount) -> list[bytes]:
    results = count.images - count.errors
    return whole_lines(target, results_name(shard), count.results_digest, results)


def read_picture(
    source: Store, target: Store, shard: int, line: int, count: ShardCount, at_most: int
) -> bytes:
    """The picture of a result as it was asked about, upright, as a JPEG of `SIDE` at most.

    Args:
        count: what the shard holds.
        at_most: bytes that its file may have.

    Raises:
        ProblemError: not-found where it is not the one that was asked about any more; image-too-large.
        JobError, StoreAway: a store cannot be read.
    """
    (result,) = read_results(target, [(shard, line)], {shard: count})
    etags = {item.key: item.etag for item in read_items(target, shard)}
    if result.key not in etags:
        raise Damaged(f"the list of images of shard {shard} in {target.url} was cut")
    planned = etags[result.key]
    try:
        size = source.size(result.key)
        if size > at_most:
            raise ProblemError(
                "image-too-large", f"The file has {size} bytes; at most {at_most} are read to be shown."
            )
        data, etag = source.get(result.key)
    except NoSuchKey as error:
        raise ProblemError(
            "not-found", f"The picture {result.key!r} is no longer in the source store: {error}."
        ) from error
    decoded = decode(data)
    size_now, size_then = (decoded.width, decoded.height), (result.image.width, result.image.height)
    if planned != etag if planned else size_now != size_then:
        raise ProblemError("not-found", f"The picture {result.key!r} was replaced after the job had read it.")
    image = Image.fromarray(decoded.image)
    image.thumbnail((SIDE, SIDE), reducing_gap=2.0)
    small = BytesIO()
    image.save(small, "JPEG", quality=85)
    return small.getvalue()
