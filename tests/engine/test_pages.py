"""The page pool: any order of takes, releases, uses and failures keeps every page in one place."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from engine.pages import PADDING_PAGE, PagePool, Prefix

KEYS = st.integers(0, 4)


class PoolMachine(RuleBasedStateMachine):
    """The model: what was handed out, by whom it is used, and which prefixes should still be known."""

    taken = Bundle("taken")
    uses = Bundle("uses")

    @initialize(pages=st.integers(2, 24))
    def build(self, pages: int) -> None:
        self.pool = PagePool(pages)
        self.lists: list[list[int]] = []
        self.users: dict[int, int] = {}
        self.prefixes: dict[int, Prefix] = {}
        self.current: dict[int, Prefix] = {}

    @rule(target=taken, count=st.integers(0, 8))
    def take(self, count: int):  # type: ignore[no-untyped-def]
        could = count <= self.pool.free + self.pool.cached
        assert self.pool.can_take(count) == could
        if not could:
            with pytest.raises(ValueError, match="asked for"):
                self.pool.take(count)
            return multiple()
        pages = self.pool.take(count)
        assert len(set(pages)) == count
        assert PADDING_PAGE not in pages
        self.lists.append(pages)
        return pages

    @rule(pages=consumes(taken))
    def release(self, pages: list[int]) -> None:
        self.lists.remove(pages)
        self.pool.release(pages)

    @rule(target=uses, key=KEYS, count=st.integers(1, 5))
    def use(self, key: int, count: int):  # type: ignore[no-untyped-def]
        """As the scheduler does: use what is there, else compute it anew if there is room."""
        known = self.pool.knows(key)
        was_idle = self.pool.is_idle(key)
        prefix = self.pool.use_prefix(key)
        assert (prefix is not None) == known
        if prefix is None:
            if not self.pool.can_take(count):
                return multiple()
            prefix = self.pool.add_prefix(key, count)
        else:
            assert prefix is self.current[key]
            assert was_idle == (self.users[id(prefix)] == 0)
        assert not self.pool.is_idle(key)
        self.prefixes[id(prefix)] = self.current[key] = prefix
        self.users[id(prefix)] = self.users.get(id(prefix), 0) + 1
        return prefix

    @rule(prefix=consumes(uses))
    def release_prefix(self, prefix: Prefix) -> None:
        self.pool.release_prefix(prefix)
        self.users[id(prefix)] -= 1
        if prefix is self.current.get(prefix.key) and not prefix.forgotten:  # type: ignore[call-overload]
            assert self.pool.is_idle(prefix.key) == (self.users[id(prefix)] == 0)

    @rule(prefix=uses)
    def forget(self, prefix: Prefix) -> None:
        """The step that computed it failed; a prefix in use can be forgotten, and by several steps."""
        self.pool.forget_prefix(prefix)
        if self.current.get(prefix.key) is prefix:  # type: ignore[call-overload]
            del self.current[prefix.key]  # type: ignore[arg-type]
            assert not self.pool.knows(prefix.key)

    @rule()
    def clear_cache(self) -> None:
        held = self.pool.held
        self.pool.clear_cache()
        assert self.pool.cached == 0
        assert self.pool.held == held
        assert self.pool.free == self.pool.total - held

    @invariant()
    def every_page_is_in_one_place(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_integrity(idle=False)
        in_use = [p for p in self.prefixes.values() if self.users[id(p)] > 0]
        held = [
            *(page for pages in self.lists for page in pages),
            *(page for p in in_use for page in p.pages),
        ]
        assert len(set(held)) == len(held) == self.pool.held, "a page has two owners"
        if not held:
            self.pool.check_integrity(idle=True)
        elif self.pool.held:
            with pytest.raises(AssertionError, match="held while idle"):
                self.pool.check_integrity(idle=True)
        for prefix in in_use:
            assert prefix.forgotten or self.pool.knows(prefix.key)

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for pages in self.lists:
            self.pool.release(pages)
        for identity, count in self.users.items():
            for _ in range(count):
                self.pool.release_prefix(self.prefixes[identity])
        self.pool.check_integrity(idle=True)
        self.pool.clear_cache()
        assert self.pool.free == self.pool.total


TestPagePool = PoolMachine.TestCase
TestPagePool.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_the_least_recently_used_prefix_goes_first() -> None:
    pool = PagePool(7)
    first, second = pool.add_prefix("first", 2), pool.add_prefix("second", 2)
    pool.release_prefix(first)
    pool.release_prefix(second)
    again = pool.use_prefix("first")
    assert again is first
    pool.release_prefix(first)
    pool.take(4)
    assert pool.knows("first")
    assert not pool.knows("second")
    pool.check_integrity(idle=False)


def test_a_prefix_in_use_is_never_evicted() -> None:
    pool = PagePool(5)
    pool.add_prefix("used", 2)
    assert not pool.can_take(3)
    pool.take(2)
    assert pool.knows("used")


def test_a_forgotten_prefix_makes_room_for_a_new_one_of_its_key() -> None:
    pool = PagePool(7)
    failed = pool.add_prefix("image", 2)
    pool.forget_prefix(failed)
    assert pool.use_prefix("image") is None
    fresh = pool.add_prefix("image", 2)
    assert set(fresh.pages).isdisjoint(failed.pages)
    pool.release_prefix(failed)
    assert pool.use_prefix("image") is fresh
    pool.check_integrity(idle=False)


def test_nothing_is_released_twice() -> None:
    pool = PagePool(5)
    pages = pool.take(2)
    pool.release(pages)
    with pytest.raises(KeyError):
        pool.release(pages)


def test_a_pool_needs_a_page_beside_the_padding() -> None:
    with pytest.raises(ValueError, match="at least two pages"):
        PagePool(1)
