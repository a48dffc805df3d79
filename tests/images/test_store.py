"""Uploaded images: kept while they are used, their tenant's own, and never more than there is room for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from app.admission.client import AdmissionClient
from app.admission.errors import QueueFull, TenantQueueFull
from app.admission.images import ImageRef
from app.images.picture import Picture
from app.images.store import ImageStore, Room
from app.intake.cost import Cost
from app.problems import ProblemError
from app.settings import Settings
from tests.admission.fakes import Work, announce, answer, ask, until

ROOM = Room(bytes=1000, tenant_bytes=600, ttl_s=60.0)
Start = Callable[..., Awaitable[Work]]


def store_of(redis: Redis, settings: Settings, room: Room = ROOM) -> ImageStore:
    return ImageStore(redis, settings.namespace, room)


async def refused(asking: Awaitable[object]) -> tuple[str, int, str]:
    with pytest.raises(ProblemError) as caught:
        await asking
    return caught.value.slug, caught.value.status, caught.value.detail


async def load(picture: Picture) -> bytes:
    assert isinstance(picture.data, ImageRef)
    return await picture.data.load()


async def kept_id(store: ImageStore, tenant: str, data: bytes) -> str:
    picture = await store.keep(tenant, data, 40, 100)
    assert picture.id is not None
    return picture.id


async def test_what_is_kept_is_found_again(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    image_id = await kept_id(store, "us", b"an image")
    found = await store.use("us", image_id)
    assert (found.id, found.width, found.height, found.size) == (image_id, 40, 100, 8)
    assert await load(found) == b"an image"


async def test_what_decoding_costs_is_kept_with_it(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    picture = await store.keep("us", b"an image", 4000, 3000, Cost(12, 345_000_000))
    assert picture.id is not None
    assert (await store.use("us", picture.id)).cost == picture.cost == Cost(12, 345_000_000)
    await redis.hdel(f"pb1:{{{settings.namespace}}}:handle:us:{picture.id}", "price", "memory")
    unknown = (await store.use("us", picture.id)).cost
    assert unknown.price > 12, "as if it were of the dearest kind"
    assert unknown.memory > 300_000_000


async def test_a_foreign_id_is_the_same_as_an_unknown_one(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    image_id = await kept_id(store, "us", b"an image")
    unknown = await refused(store.use("us", "nonsense"))
    assert unknown[:2] == ("not-found", 404)
    assert await refused(store.use("them", image_id)) == unknown
    assert await refused(store.drop("them", image_id)) == unknown
    assert await refused(store.drop("us", "nonsense")) == unknown
    await store.drop("us", image_id)
    assert await refused(store.use("us", image_id)) == unknown
    assert await refused(store.drop("us", image_id)) == unknown


async def test_use_keeps_and_disuse_ends(redis: Redis, settings: Settings) -> None:
    brief, store = store_of(redis, settings, replace(ROOM, ttl_s=4.0)), store_of(redis, settings)
    used, unused = await kept_id(brief, "us", b"used"), await kept_id(brief, "us", b"unused")

    async def gone() -> bool:
        await store.use("us", used)
        handles = await redis.keys(f"*{settings.namespace}*:handle:*")
        return len(handles) == 1

    await until(gone)
    assert (await refused(store.use("us", unused)))[0] == "not-found"
    assert await load(await store.use("us", used)) == b"used"


async def test_nothing_is_left_of_what_is_gone(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    for tenant in ("us", "them:with:colons"):
        first, second = await kept_id(store, tenant, b"an image"), await kept_id(store, tenant, b"an image")
        await store.drop(tenant, first)
        assert await load(await store.use(tenant, second)) == b"an image"  # the bytes are shared
        await store.drop(tenant, second)
    left = {key.decode().split("}:")[1] for key in await redis.keys(f"*{settings.namespace}*")}
    assert left <= {"handle-bytes"}
    assert await redis.hgetall(f"pb1:{{{settings.namespace}}}:handle-bytes") == {b"": b"0"}


async def test_expired_images_give_back_their_room(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings, replace(ROOM, ttl_s=0.2))
    await kept_id(store, "us", b"x" * 600)
    with pytest.raises(TenantQueueFull) as full:
        await kept_id(store, "us", b"y")
    assert full.value.retry_after_s == 1.0
    await asyncio.sleep(0.3)
    await kept_id(store, "us", b"y" * 600)


async def test_room_is_counted_for_each_and_for_all(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    await kept_id(store, "us", b"x" * 600)
    await kept_id(store, "them", b"x" * 400)
    with pytest.raises(TenantQueueFull, match="600 bytes"):
        await kept_id(store, "us", b"x")
    with pytest.raises(QueueFull) as full:
        await kept_id(store, "others", b"x")
    assert full.value.retry_after_s is not None
    assert 1 <= full.value.retry_after_s <= 60


async def test_answers_about_an_image_leave_it_where_it_is(
    redis: Redis, settings: Settings, queue_client: AdmissionClient, start_work: Start
) -> None:
    await start_work()
    store = store_of(redis, settings)
    image_id = await kept_id(store, "us", b"an image")
    for _ in range(3):
        picture = await store.use("us", image_id)
        ticket = await ask(queue_client, "a phrase", image=picture.data, tenant="us")
        assert len((await answer(ticket)).objects) == 3
    assert await redis.exists(f"pb1:{{{settings.namespace}}}:image:us:{picture.data.sha256}")  # type: ignore[union-attr]
    # Beside an upload of the same bytes by the queue's own way, whichever ends last.
    await answer(await ask(queue_client, "a phrase", image=b"an image", tenant="us"))
    assert await load(await store.use("us", image_id)) == b"an image"


async def test_an_image_dropped_meanwhile_still_serves_its_request(
    redis: Redis, settings: Settings, queue_client: AdmissionClient, start_work: Start
) -> None:
    work = await start_work()
    store = store_of(redis, settings)
    image_id = await kept_id(store, "us", b"an image")
    ticket = await ask(queue_client, "hold", image=(await store.use("us", image_id)).data, tenant="us")
    await store.drop("us", image_id)
    work.engine.release.set()
    assert len((await answer(ticket)).objects) == 3
    assert not await redis.keys(f"*{settings.namespace}*:image:*")


async def test_bytes_that_redis_evicted_are_not_found(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    image_id = await kept_id(store, "us", b"an image")
    await redis.delete(*await redis.keys(f"*{settings.namespace}*:image:*"))
    assert (await refused(store.use("us", image_id)))[0] == "not-found"
    assert not await redis.keys(f"*{settings.namespace}*:handle:*")


async def test_the_queue_gives_back_all_bytes_that_it_has_counted(
    redis: Redis, settings: Settings, queue_client: AdmissionClient
) -> None:
    """Though an upload of the same bytes comes or goes meanwhile; another request stays open."""
    await announce(redis, settings)
    store = store_of(redis, settings)
    await ask(queue_client, "a phrase", image=b"other", tenant="them")

    async def counted() -> int:
        return int(await redis.hget(f"pb1:{{{settings.namespace}}}:open", "bytes") or 0)

    ticket = await ask(queue_client, "a phrase", image=b"an image", tenant="us")
    assert await counted() == 5 + 8
    image_id = await kept_id(store, "us", b"an image")
    await ticket.cancel()
    assert await counted() == 5
    kept = await store.use("us", image_id)
    ticket = await ask(queue_client, "a phrase", image=kept.data, tenant="us")
    await store.drop("us", image_id)
    await ticket.cancel()
    assert await counted() == 5


async def test_bytes_and_handles_end_when_nobody_asks_again(
    redis: Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.images.store.SWEEP_S", 0.1)
    store = store_of(redis, settings, replace(ROOM, ttl_s=1.0))
    await kept_id(store, "us", b"an image")
    (image,) = await redis.keys(f"*{settings.namespace}*:image:*")
    await redis.pexpire(image, 120_000)  # as a request with a long deadline does
    sweeping = asyncio.create_task(store.keep_swept())

    async def nothing_left() -> bool:
        return not await redis.keys(f"*{settings.namespace}*")

    await until(nothing_left)
    sweeping.cancel()


async def test_every_key_of_an_image_has_an_end_without_a_sweep(redis: Redis, settings: Settings) -> None:
    store = store_of(redis, settings)
    await kept_id(store, "us", b"an image")
    for kind in ("handle:*", "image:*"):
        (key,) = await redis.keys(f"*{settings.namespace}*:{kind}")
        assert 0 < await redis.pttl(key) <= (ROOM.ttl_s + 60) * 1000
    assert await redis.delete(*await redis.keys(f"*{settings.namespace}*:handle:*")) == 1  # its time is over
    key = f"pb1:{{{settings.namespace}}}:handles"
    (member,) = await redis.zrange(key, 0, -1)
    await redis.zadd(key, {member: 1})
    await store.keep("us", bytes(600), 40, 100)  # its room is given back


async def test_counts_of_a_tenant_have_an_end(
    redis: Redis, settings: Settings, queue_client: AdmissionClient, start_work: Start
) -> None:
    await start_work()
    await answer(await ask(queue_client))
    (key,) = await redis.keys(f"*{settings.namespace}*:usage:*")
    assert 24 * 3600 < await redis.ttl(key) <= 3 * 24 * 3600
