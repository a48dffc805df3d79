"""What runs on the device: forwards, sampling, and the copies around them."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from engine.adapters.bank import AdapterBank
from engine.attention import KvCache
from engine.device.base import Device, Event, Timed
from engine.device.cuda import upload
from engine.forwards import Forwards, Work
from engine.models.base import Model
from engine.pages import PADDING_PAGE
from engine.pipeline import DEPTH
from engine.sampling import Chance
from engine.sequence import Sequence
from engine.slots import DecodeSlot
from engine.steps import Decode, Extend, Prefill, Step
from engine.typed_sampling import make_sampler
from grammars.cursors import Cursors, Rows

Placement = Literal["host", "device"]
_UNTIMED = (0.0, 0.0)
MICRO = 1_000_000
"""Temperature and top_p travel as whole millionths."""


class Executor:
    """Owns the two slots and everything kept by row on the device.

    Device placement: sampling advances states and open objects on the device, so it needs nothing from the
    host but the rows.  Host placement: it gets states and bounds from the host's cursors.
    """

    def __init__(
        self,
        model: Model,
        device: Device,
        cache: KvCache,
        max_batch: int,
        placement: Placement,
        adapters: AdapterBank | None = None,
    ) -> None:
        self._device, self._placement, self._adapters = device, placement, adapters
        self._grammar = model.grammar
        self._page_size = cache.page_size
        where = device.torch_device
        width = -(-model.max_context // cache.page_size)
        rows = max_batch + 1  # the last one is padding
        self._token_by_row = torch.zeros(rows, dtype=torch.int64, device=where)
        self._state_by_row = torch.zeros(rows, dtype=torch.int64, device=where)
        self._values_by_row = torch.full((rows, Cursors.width(model.grammar)), -1, device=where)
        tables = torch.full((rows, width), PADDING_PAGE, dtype=torch.int64, device=where)
        self._forwards = Forwards(model, device, cache, tables, self._token_by_row, adapters)
        self._slots = [DecodeSlot(max_batch, model.grammar.logits, where) for _ in range(DEPTH)]
        self._events: list[tuple[Event, ...]] = [()] * DEPTH
        """Of each slot's step: its forward, its sampling, the copy of its tokens."""
        self._resets: list[tuple[Event, ...]] = [()] * DEPTH
        """Of each slot's step, if it is a prefill: the reset of its rows' block tables."""
        self._sampler = make_sampler(model.grammar, where)
        self._table_width = width
        self.device_s = 0.0
        """Seconds that the compute stream worked; 0 on devices that do not know."""

    def launch(self, slot_index: int, step: Step, index: npt.NDArray[np.int64]) -> None:
        """Enqueue the forward of a step.

        index: place in its sequence of each decode row's token, [bucket].
        """
        slot = self._slots[slot_index]
        self._resets[slot_index] = ()
        match step:
            case Decode():
                slot.inputs.host["row"][: len(index)] = step.rows
                slot.inputs.host["index"][: len(index)] = index
                width = self._width(index + 1)
                work = self._forwards.decode(slot, len(index), width)
                forward = self._device.compute(work, ("forward", slot_index, len(index), width))
            case Extend():
                width = self._width(np.array(step.starts) + [len(run) for run in step.runs])
                forward = self._device.compute(self._forwards.extend(slot, step, width))
            case Prefill():
                width = self._width(np.array([s.image_tokens + len(s.prompt) for s in step.sequences]))
                work = self._forwards.prefill(slot, step, width)
                self._resets[slot_index] = (self._reset(slot, slot_index, step.rows),)
                forward = self._device.compute(self._after_setup(step, work))
            case _:
                raise TypeError(f"no forward for {type(step).__name__}")
        self._events[slot_index] = (forward,)

    def finalize(self, slot_index: int, step: Step, cursors: Cursors) -> None:
        """Enqueue the sampling of a launched step, and the copy of its tokens."""
        slot, batch = self._slots[slot_index], len(step.rows)
        self.choose(slot_index, step.rows, cursors)
        if step.warm:
            _fill_chance(slot, step.sequences)
        key = ("sample", slot_index, batch, step.warm)
        sampled = self._device.compute(self._sample(slot, batch, step.warm), key)
        self._events[slot_index] += (sampled, self._device.copy(slot.download, after=sampled))

    def choose(self, slot_index: int, rows: Rows, cursors: Cursors) -> None:
        """Write what the device needs to build the masks of a step: states and bounds, not the masks."""
        choice, batch = self._slots[slot_index].choice.host, len(rows)
        choice["row"][:batch] = rows
        if self._placement == "host":
            choice["state"][:batch] = cursors.state[rows]
            choice["low"][:batch], choice["high"][:batch] = cursors.bounds(rows)

    def wait(self, slot_index: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Alphabet positions and probabilities of a finalized step; raises what its device work raised.

        The probabilities are those in the slot, to be used before the commit ends.  Either way all of its
        work is over, so that its slot may be written again.
        """
        errors: list[Exception] = []
        for event in (*self._resets[slot_index], *self._events[slot_index]):
            try:
                event.wait()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        for event in self._events[slot_index][:2]:  # forward and sampling: copies have a stream of their own
            begin, end = getattr(event, "ran", _UNTIMED)  # asking whether it is a `Timed` takes longer
            self.device_s += end - begin
        slot = self._slots[slot_index]
        return slot.positions[:count].astype(np.int64), slot.probabilities[:count]

    def known_error(self, slot_index: int) -> BaseException | None:
        """What the device work of a step in flight has raised so far, without waiting."""
        events = (*self._resets[slot_index], *self._events[slot_index])
        return next((event.error for event in events if event.error is not None), None)

    def ran(self, slot_index: int) -> dict[str, tuple[float, float]]:
        """When the work of a committed step ran, on devices that know."""
        events = zip(("forward", "sample", "copy"), self._events[slot_index], strict=False)
        return {name: event.ran for name, event in events if isinstance(event, Timed)}

    def counts(self) -> tuple[int, int]:
        """Images that went through the vision tower, and prompt and image tokens prefilled, so far."""
        return self._forwards.vision_images, self._forwards.prefill_tokens

    def clear_cache(self) -> None:
        """Drop cached vision features."""
        self._device.compute(self._forwards.features.clear).wait()

    def _sample(self, slot: DecodeSlot, batch: int, warm: bool) -> Work:
        """Work that samples `batch` rows of a slot's logits."""

        def work() -> None:
            slot.choice.upload()
            choice = {name: values[:batch] for name, values in slot.choice.device.items()}
            row = choice["row"]
            if self._placement == "device":
                state, values = self._state_by_row[row], self._values_by_row[row]
                low, high = self._sampler.bounds(state, values)
            else:
                state, low, high = choice["state"], choice["low"], choice["high"]
            chance = _chance(slot, batch) if warm else None
            position, probability = self._sampler(slot.logits[:batch], state, low, high, chance)
            if self._placement == "device":
                state, values = self._sampler.advance(state, values, position)
                self._state_by_row[row] = state
                self._values_by_row[row] = values
            self._token_by_row[row] = self._sampler.tokens(position)
            slot.sampled[0, :batch] = position
            slot.sampled[1, :batch] = probability

        return work

    def _reset(self, slot: DecodeSlot, slot_index: int, rows: Rows) -> Event:
        """Point rows that were just given at the padding page, as work of its own before their prefill.

        If the prefill then fails before it has written their block tables, the decode step behind it still
        has these rows; it must not write through the tables of the rows' previous owners.
        """
        given = slot.given.host["row"]
        given[: len(rows)] = rows
        given[len(rows) :] = rows[0]

        def work() -> None:
            slot.given.upload()
            self._forwards.tables.index_fill_(0, slot.given.device["row"], PADDING_PAGE)

        return self._device.compute(work, ("reset", slot_index))

    def _after_setup(self, step: Prefill, then: Work) -> Work:
        """Work that writes block tables and initial states of rows that were just given, and goes on."""
        sequences, new_adapters = step.sequences, step.new_adapters
        tables = [[*self._shared_pages(s), *s.pages] for s in sequences]
        padded = [[*pages, *[PADDING_PAGE] * (self._table_width - len(pages))] for pages in tables]
        places = torch.tensor([s.row for s in sequences])
        states = torch.tensor([self._grammar.initial(s.ask.request.task) for s in sequences])
        pages = torch.tensor(padded)
        shifts = torch.tensor([s.shift for s in sequences])
        adapters = torch.tensor([s.adapter_slot for s in sequences])

        def work() -> None:
            where = self._device.torch_device
            rows = upload(places, where)
            self._forwards.tables[rows] = upload(pages, where)
            self._forwards.shift_by_row[rows] = upload(shifts, where)
            if self._adapters is not None:
                self._forwards.adapter_by_row[rows] = upload(adapters, where)
                for slot, name in new_adapters.items():
                    self._adapters.fill(slot, name)
            self._state_by_row[rows] = upload(states, where)
            self._values_by_row[rows] = -1
            then()

        return work

    def _shared_pages(self, sequence: Sequence) -> list[int]:
        """Pages of its image's prefix that no token after it is written to."""
        full = sequence.image_tokens // self._page_size
        return sequence.prefix.pages[:full] if sequence.prefix else []

    def _width(self, tokens: npt.NDArray[np.int64]) -> int:
        """Pages of the block table that a step reads whose rows are so long."""
        if self._device.fixed_shapes:
            return self._table_width
        return -(-int(tokens.max()) // self._page_size)


def _fill_chance(slot: DecodeSlot, sequences: Listing[Sequence]) -> None:
    host = slot.chance.host
    host["temperature"][:] = 0
    for i, sequence in enumerate(sequences):
        request = sequence.ask.request
        host["temperature"][i] = round(request.temperature * MICRO)
        host["top_p"][i] = round(request.top_p * MICRO)
        host["seed"][i] = sequence.seed
        host["count"][i] = sequence.launched


def _chance(slot: DecodeSlot, batch: int) -> Chance:
    """On the compute stream."""
    slot.chance.upload()
    device = {name: values[:batch] for name, values in slot.chance.device.items()}
    return Chance(
        device["temperature"].double() / MICRO,
        device["top_p"].double() / MICRO,
        device["seed"],
        device["count"],
    )
