"""Slots of adapters: never taken from who uses one, filled when they must be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.adapters.slots import NO_ADAPTER, AdapterSlots


def test_a_slot_is_filled_once_and_kept_until_another_needs_it() -> None:
    slots = AdapterSlots(2)
    assert slots.take("a") == (1, True)
    assert slots.take("a") == (1, False)
    assert slots.take("b") == (2, True)
    assert slots.take("c") is None
    slots.release("a")
    assert slots.take("c") is None
    slots.release("a")
    assert slots.take("a") == (1, False)
    slots.release("a")
    assert slots.take("c") == (1, True)
    assert slots.held == 2
    slots.release("c")
    assert slots.take("a") == (1, True)


def test_the_longest_idle_goes_first() -> None:
    slots = AdapterSlots(2)
    for name in ("a", "b"):
        slots.take(name)
    for name in ("b", "a"):
        slots.release(name)
    assert slots.take("c") == (2, True)
    assert slots.take("a") == (1, False)


def test_what_could_not_be_filled_is_filled_again() -> None:
    slots = AdapterSlots(1)
    slots.take("a")
    slots.forget("a")
    assert slots.take("a") == (1, True)
    assert slots.take("a") == (1, False)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60), st.integers(1, 3))
def test_any_order(events: list[tuple[str, bool]], count: int) -> None:
    slots = AdapterSlots(count)
    users: dict[str, list[int]] = {name: [] for name in "abcd"}
    lies: dict[int, str] = {}
    for name, arrives in events:
        if not arrives:
            if users[name]:
                users[name].pop()
                slots.release(name)
            continue
        taken = slots.take(name)
        if taken is None:
            assert not users[name]
            assert sum(map(bool, users.values())) == count
            continue
        slot, must_fill = taken
        assert NO_ADAPTER < slot <= count
        assert must_fill == (lies.get(slot) != name)
        lies[slot] = name
        users[name].append(slot)
        in_use = {name: set(taken) for name, taken in users.items() if taken}
        assert all(len(mine) == 1 for mine in in_use.values())
        assert len(set.union(*in_use.values())) == len(in_use) == slots.held
