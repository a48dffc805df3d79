"""Which adapter lies in which of the places that the device has for them, and how many use it."""

from __future__ import annotations

from collections import Counter, OrderedDict

NO_ADAPTER = 0
"""The slot of rows without one; it adds nothing."""


class AdapterSlots:
    """A slot belongs to its adapter until another one needs it, and never while somebody uses it.

    Only the engine thread touches it.
    """

    def __init__(self, count: int) -> None:
        """Slots from 1 to count."""
        self._free = list(range(count, NO_ADAPTER, -1))
        self._used: dict[str, int] = {}
        self._users: Counter[str] = Counter()
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._filled: set[str] = set()

    @property
    def held(self) -> int:
        """Slots in use."""
        return len(self._used)

    def take(self, adapter: str) -> tuple[int, bool] | None:
        """The adapter's slot, used once more, and whether it must be filled; None while all are in use."""
        if adapter not in self._used:
            if adapter in self._idle:
                slot = self._idle.pop(adapter)
            elif self._free:
                slot = self._free.pop()
            elif self._idle:
                gone, slot = self._idle.popitem(last=False)
                self._filled.discard(gone)
            else:
                return None
            self._used[adapter] = slot
        self._users[adapter] += 1
        must_fill = adapter not in self._filled
        self._filled.add(adapter)
        return self._used[adapter], must_fill

    def release(self, adapter: str) -> None:
        """One user less."""
        self._users[adapter] -= 1
        if not self._users[adapter]:
            del self._users[adapter]
            self._idle[adapter] = self._used.pop(adapter)

    def forget(self, adapter: str) -> None:
        """Filling its slot failed: whoever takes it next fills it again."""
        self._filled.discard(adapter)
