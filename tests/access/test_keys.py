"""Keys in both kinds of database."""

from __future__ import annotations

import asyncio
import datetime

import pytest

from app.access.keyring import MEMORY_S, Keyring
from app.access.keys import KeyFault, Keys, NewKey
from app.db.database import Database
from app.db.migrations import upgrade
from app.db.models import ApiKey
from app.problems import ProblemError
from app.settings import Settings
from tests.admission.fakes import until


@pytest.fixture
async def keys(database: Database) -> Keys:
    await upgrade(database)
    return Keys(database)


async def test_a_key_is_found_by_itself_only_and_kept_as_a_digest(keys: Keys, database: Database) -> None:
    row, key = await keys.create(
        NewKey(tenant="acme", name="x", scopes=("jobs", "infer"), rate_per_minute=60)
    )
    assert key.startswith(row.prefix)
    assert len(key) > 50
    found = await keys.find(key)
    assert found is not None
    assert (found.tenant, found.scopes, found.rate_per_minute) == ("acme", "infer jobs", 60)
    assert await keys.find(row.prefix) is None
    assert await keys.find(key[:-1] + "x" * (key[-1] != "x")) is None
    stored = [str(value) for value in vars(found).values()]
    assert not any(key in value or key[12:] in value for value in stored)


async def test_a_revoked_or_expired_key_is_not_found_but_listed(keys: Keys) -> None:
    gone, revoked = await keys.create(NewKey(tenant="acme"))
    past = datetime.timedelta(seconds=-1)
    _, expired = await keys.create(NewKey(tenant="beta", expires_in=past))
    assert await keys.any()
    first = await keys.revoke(gone.prefix)
    assert (await keys.revoke(revoked)).revoked_at == first.revoked_at
    assert await keys.find(revoked) is None
    assert await keys.find(expired) is None
    assert [row.tenant for row in await keys.all()] == ["acme", "beta"]
    assert not await keys.any()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tenant": ""}, "a tenant is"),
        ({"tenant": "a:b"}, "a tenant is"),
        ({"tenant": "anonymous"}, "without a key"),
        ({"tenant": "a", "scopes": ("read",)}, "there is no scope 'read'; there are infer, jobs"),
        ({"tenant": "a", "scopes": ()}, "at least one"),
        ({"tenant": "a", "rate_per_minute": 0}, "the rate must be"),
        ({"tenant": "a", "name": "x" * 101}, "at most 100"),
    ],
)
def test_what_cannot_be_a_key_is_told(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(KeyFault, match=says):
        NewKey(**wrong)  # type: ignore[arg-type]


async def test_revoking_an_unknown_key_says_where_to_look(keys: Keys) -> None:
    with pytest.raises(KeyFault, match="keys list"):
        await keys.revoke("pb_nothing1")


async def test_the_keyring_forgets_a_revoked_key(keys: Keys) -> None:
    keyring = Keyring(keys, "")
    row, key = await keys.create(NewKey(tenant="acme", concurrency=3))
    grant = await keyring.grant(key)
    assert (grant.caller.tenant, grant.caller.key_id, grant.concurrency) == ("acme", row.id, 3)
    await keys.revoke(row.prefix)
    assert MEMORY_S < 5

    async def is_refused() -> bool:
        try:
            await keyring.grant(key)
        except ProblemError as problem:
            return problem.slug == "unauthenticated"
        return False

    await until(is_refused)


async def test_of_many_requests_with_one_key_one_asks_the_database(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, key = await keys.create(NewKey(tenant="acme"))
    asked: list[str] = []
    find = keys.find

    async def slow_find(key: str) -> ApiKey | None:
        asked.append(key)
        await asyncio.sleep(0.05)
        return await find(key)

    monkeypatch.setattr(keys, "find", slow_find)
    keyring = Keyring(keys, "")
    waiting = [asyncio.create_task(keyring.grant(key)) for _ in range(100)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    grants = await asyncio.gather(*waiting[1:])
    assert {grant.caller.key_id for grant in grants} == {row.id}
    assert len(asked) == 1
    with pytest.raises(ProblemError):
        await keyring.grant("pb_unknown")


async def test_the_bootstrap_key_needs_no_database() -> None:
    keyring = Keyring(Keys(Database(Settings(database_url="postgresql://127.0.0.1:1/x"))), "b" * 20)
    grant = await keyring.grant("b" * 20)
    assert (grant.caller.tenant, grant.caller.key_id) == ("default", "bootstrap")
    assert grant.caller.scopes >= {"infer", "jobs", "metrics"}
    with pytest.raises(ProblemError) as refused:
        await keyring.grant("another key")
    assert refused.value.slug == "unavailable"
    assert not await keyring.reachable()
