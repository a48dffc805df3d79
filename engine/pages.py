"""Who owns which block of KV.

Page 0 is reserved: padding rows read and write it and nothing else does.  Every other page is free, held
by a sequence, or part of an image prefix.  A prefix that no sequence uses stays cached until its pages are
needed (least recently used first).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

PADDING_PAGE = 0


@dataclass(eq=False, slots=True)
class Prefix:
    """The KV of one image: whole pages, shared by every sequence that counts in `refs`."""

    key: Hashable
    pages: list[int]
    refs: int = 1
    forgotten: bool = False


class PagePool:
    """Counts pages; the KV itself lies in the executor's tensors."""

    def __init__(self, pages: int) -> None:
        if pages < 2:
            raise ValueError("a page pool needs at least two pages, one of them reserved")
        self.total = pages - 1
        self._free = list(range(pages - 1, PADDING_PAGE, -1))
        self._held: set[int] = set()
        self._used: dict[Hashable, Prefix] = {}
        self._idle: OrderedDict[Hashable, Prefix] = OrderedDict()

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        """Pages of prefixes that no sequence uses; they can be taken."""
        return sum(len(p.pages) for p in self._idle.values())

    @property
    def held(self) -> int:
        """Pages of sequences and of the prefixes that they use."""
        return len(self._held)

    def can_take(self, pages: int) -> bool:
        return pages <= self.free + self.cached

    def take(self, count: int) -> list[int]:
        """Raises ValueError if `can_take` does not hold."""
        if not self.can_take(count):
            raise ValueError(f"{count} pages asked for, {self.free + self.cached} to be had")
        while self.free < count:
            _, evicted = self._idle.popitem(last=False)
            self._free.extend(evicted.pages)
        taken = [self._free.pop() for _ in range(count)]
        self._held.update(taken)
        return taken

    def release(self, pages: list[int]) -> None:
        for page in pages:
            self._held.remove(page)
        self._free.extend(pages)

    def use_prefix(self, key: Hashable) -> Prefix | None:
        """The prefix of an image, counted as used once more, or None if it is not there."""
        if (prefix := self._idle.pop(key, None)) is not None:
            self._held.update(prefix.pages)
            self._used[key] = prefix
        elif (prefix := self._used.get(key)) is None:
            return None
        prefix.refs += 1
        return prefix

    def knows(self, key: Hashable) -> bool:
        return key in self._used or key in self._idle

    def is_idle(self, key: Hashable) -> bool:
        """Whether using this prefix would hold pages that `can_take` counts as available."""
        return key in self._idle

    def add_prefix(self, key: Hashable, count: int) -> Prefix:
        """Take pages for a prefix about to be computed; used once."""
        prefix = self._used[key] = Prefix(key, self.take(count))
        return prefix

    def release_prefix(self, prefix: Prefix) -> None:
        prefix.refs -= 1
        if prefix.refs:
            return
        if prefix.forgotten:
            self.release(prefix.pages)
            return
        del self._used[prefix.key]
        self._held.difference_update(prefix.pages)
        self._idle[prefix.key] = prefix

    def forget_prefix(self, prefix: Prefix) -> None:
        """Its computation failed: nobody new may use it; its pages come back with its last user."""
        if not prefix.forgotten:
            prefix.forgotten = True
            del self._used[prefix.key]

    def clear_cache(self) -> None:
        while self._idle:
            self._free.extend(self._idle.popitem()[1].pages)

    def check_integrity(self, idle: bool) -> None:
        """Raises AssertionError unless every page is in one place, and when idle none is held."""
        assert self.free + self.cached + self.held == self.total, "pages were lost or counted twice"
        places = [*self._free, *self._held, *(p for x in self._idle.values() for p in x.pages)]
        assert len(set(places)) == self.total, "a page is in two places"
        assert PADDING_PAGE not in places, "the padding page was given away"
        for prefix in self._used.values():
            assert prefix.refs > 0, "a prefix in use has no user"
            assert set(prefix.pages) <= self._held, "a prefix in use is not held"
        assert not idle or self.held == 0, f"{self.held} pages are held while idle"
