"""Whose image is decoded next."""

from __future__ import annotations

from app.admission.turns import Turn, Turns
from app.intake.cost import Cost

MB = 1_000_000


def waiting(turns: Turns, names: str, cost: Cost, priority: str = "interactive") -> None:
    """One turn for each letter, which is its tenant."""
    for name in names:
        turns.add(Turn(name, priority, cost))  # type: ignore[arg-type]


def order(turns: Turns, count: int) -> str:
    """The tenants of the next turns, each done before the next one starts."""
    names = ""
    for _ in range(count):
        turn = turns.next()
        assert turn is not None
        names += turn.tenant
        turns.off_thread(turn)
        turns.out_of_memory(turn)
    return names


def test_tenants_take_turns() -> None:
    turns = Turns(2, 1000 * MB)
    waiting(turns, "aaaaa", Cost(3, MB))
    waiting(turns, "bb", Cost(3, MB))
    assert order(turns, 7) == "ababaaa"
    assert turns.next() is None


def test_turns_are_counted_by_price() -> None:
    turns = Turns(2, 1000 * MB)
    waiting(turns, "aaa", Cost(4, MB))
    waiting(turns, "bbbbbbbb", Cost(1, MB))
    assert order(turns, 11) == "abbbbabbbba"


def test_a_tenant_that_comes_back_does_not_start_anew() -> None:
    turns = Turns(2, 1000 * MB)
    waiting(turns, "a", Cost(9, MB))
    waiting(turns, "bbbb", Cost(1, MB))
    assert order(turns, 2) == "ab"
    waiting(turns, "a", Cost(9, MB))
    assert order(turns, 4) == "bbba"


def test_interactive_goes_before_batch() -> None:
    turns = Turns(2, 1000 * MB)
    waiting(turns, "a", Cost(1, MB), "batch")
    waiting(turns, "bb", Cost(9, MB))
    assert order(turns, 3) == "bba"


def test_costly_pictures_never_take_the_last_thread() -> None:
    turns = Turns(3, 1000 * MB)
    waiting(turns, "abc", Cost(50, MB))
    running = [turns.next(), turns.next()]
    assert all(running)
    assert turns.next() is None, "three costly ones of three tenants"
    waiting(turns, "a", Cost(1, MB))
    last = turns.next()
    assert last is not None
    assert not last.cost.costly, "an ordinary one passes those of its own tenant"
    assert running[0] is not None
    turns.off_thread(running[0])
    assert turns.next() is None, "its pixels are not prepared yet"
    turns.out_of_memory(running[0])
    assert turns.next() is not None
    assert turns.costly == 2


def test_ordinary_pictures_keep_to_the_memory() -> None:
    turns = Turns(4, 100 * MB)
    waiting(turns, "aa", Cost(1, 60 * MB))
    waiting(turns, "b", Cost(1, 30 * MB))
    first = turns.next()
    assert first is not None
    assert (second := turns.next()) is not None
    assert second.tenant == "b", "there is room for this one"
    assert turns.next() is None
    turns.off_thread(first)
    assert turns.next() is None
    turns.out_of_memory(first)
    assert turns.next() is not None


def test_one_that_needs_more_than_the_limit_runs_when_no_other_costly_one_does() -> None:
    turns = Turns(4, 100 * MB)
    waiting(turns, "ab", Cost(50, 500 * MB))
    first = turns.next()
    assert first is not None
    assert turns.next() is None
    waiting(turns, "cd", Cost(1, 20 * MB))
    assert (small := turns.next()) is not None
    assert small.tenant == "c"
    assert turns.next() is None, "more would keep the costly one from ever starting"
    turns.off_thread(first)
    turns.out_of_memory(first)
    assert (second := turns.next()) is not None
    assert second.tenant == "b"


def test_what_is_removed_never_starts() -> None:
    turns = Turns(2, 100 * MB)
    turn, other = Turn("a", "interactive", Cost()), Turn("a", "interactive", Cost(50))
    turns.add(turn)
    turns.add(other)
    turns.remove(turn)
    turns.remove(turn)
    assert turns.next() is other
    assert turns.next() is None
