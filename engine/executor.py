"""What runs on the device: prefill and decode forwards, sampling, and the copies around them."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from dataclasses import dataclass

import torch

from engine.attention import KvCache, Paged
from engine.device.base import Device, Event
from engine.models.base import Model
from engine.pages import PADDING_PAGE, Prefix
from engine.pipeline import DEPTH
from engine.sampling import Sampler
from engine.sequence import Sequence
from engine.slots import DecodeSlot

TABLE_STEP = 4  # block tables are read in widths that are multiples of this many pages


@dataclass(frozen=True, slots=True)
class Sampled:
    """Tokens of a committed step: alphabet positions and their probabilities, by the order of its rows."""

    positions: list[int]
    probabilities: list[float]


class Executor:
    """Owns the KV, the tokens by row, the block tables by row and the two slots."""

    def __init__(self, model: Model, device: Device, pages: int, page_size: int, max_batch: int) -> None:
        self._model, self._device, self._max_batch = model, device, max_batch
        self.page_size = page_size
        where = device.torch_device
        kv = model.kv
        self._cache = KvCache(kv.layers, pages, page_size, kv.kv_heads, kv.head_dim, kv.dtype, where)
        self._token_by_row = torch.zeros(max_batch + 1, dtype=torch.int64, device=where)
        width = -(-model.max_context // page_size)
        width = -(-width // TABLE_STEP) * TABLE_STEP
        self._tables = torch.full((max_batch + 1, width), PADDING_PAGE, dtype=torch.int32)
        alphabet = len(model.grammar.alphabet)
        self._slots = [DecodeSlot(max_batch, width, alphabet, where) for _ in range(DEPTH)]
        self._copied: list[Event | None] = [None] * DEPTH
        self._forced: list[list[bool]] = [[]] * DEPTH
        self._alphabet = torch.from_numpy(model.grammar.alphabet).to(where)
        masks = torch.from_numpy(model.grammar.masks()).to(where)
        self._sampler = Sampler(masks, model.grammar.first_coordinate)

    def place(self, sequence: Sequence) -> None:
        """Write the block table of a row that a sequence has just been given."""
        pages = [*(sequence.prefix.pages if sequence.prefix else ()), *sequence.pages]
        self._tables[sequence.row].fill_(PADDING_PAGE)
        self._tables[sequence.row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)

    def launch_decode(self, slot_index: int, sequences: Listing[Sequence]) -> None:
        """One more token for every row: enqueue the forward; `length` already counts it."""
        slot = self._slots[slot_index]
        count = len(sequences)
        batch = min(self._max_batch, 1 << (count - 1).bit_length())
        rows = [s.row for s in sequences] + [self._max_batch] * (batch - count)
        inputs = slot.inputs.host
        inputs["rows"][:batch] = torch.tensor(rows, dtype=torch.int32)
        index = [s.length - 1 for s in sequences] + [0] * (batch - count)
        inputs["index"][:batch] = torch.tensor(index, dtype=torch.int32)
        width = self._width(max(index) + 1)
        inputs["table"][:batch, :width] = self._tables[rows, :width]

        def work() -> None:
            slot.inputs.upload()
            device = slot.inputs.device
            tokens = self._token_by_row[device["rows"][:batch].long()]
            paged = Paged(
                self._cache,
                index=device["index"][:batch, None].long(),
                table=device["table"][:batch, :width].long(),
                prefix=torch.zeros(batch, dtype=torch.int64, device=tokens.device),
            )
            hidden = self._model.forward(self._model.embed(tokens[:, None]), paged)
            slot.logits[:batch] = self._model.head(hidden[:, 0])

        self._device.compute(work)

    def launch_prefill(
        self, slot_index: int, sequences: Listing[Sequence], new_prefixes: dict[Prefix, torch.Tensor]
    ) -> None:
        """The prompts of new rows, and the KV of the images that no earlier step has computed."""
        slot = self._slots[slot_index]
        images = self._model.image_tokens
        shared = self._model.info.prefix == "image"
        pixels = list(new_prefixes.values()) if shared else [s.pixels for s in sequences]
        stacked = torch.stack([p for p in pixels if p is not None]) if pixels else None
        prefix_tables = _padded([p.pages for p in new_prefixes], PADDING_PAGE)
        prompts = _padded([s.prompt for s in sequences], 0)
        lengths = torch.tensor([len(s.prompt) for s in sequences])
        width = self._width(images + int(lengths.max()))
        tables = self._tables[[s.row for s in sequences], :width].long()

        def work() -> None:
            where = self._device.torch_device
            features = None if stacked is None else self._model.encode_images(stacked.to(where))
            if shared and features is not None:
                self._model.forward(features, self._whole(features, prefix_tables.to(where)))
            embeds = self._model.embed(prompts.to(where))
            start = images
            if not shared:
                assert features is not None
                embeds, start = torch.cat([features, embeds], dim=1), 0
            hidden = self._model.forward(embeds, self._prompted(embeds, tables, lengths, start, shared))
            last = (images - start + lengths - 1).to(where)
            slot.logits[: len(last)] = self._model.head(hidden[torch.arange(len(last)), last])

        self._device.compute(work)

    def finalize(self, slot_index: int, sequences: Listing[Sequence]) -> None:
        """Enqueue the sampling of a launched step from its sequences' present states, and the copy."""
        slot = self._slots[slot_index]
        count = len(sequences)
        forced = [-1 if s.finalized else s.forced() for s in sequences]
        self._forced[slot_index] = [token >= 0 for token in forced]
        bounds = [s.cursor.bounds() for s in sequences]
        columns = {
            "rows": [s.row for s in sequences],
            "state": [s.cursor.state for s in sequences],
            "low": [low for low, _ in bounds],
            "high": [high for _, high in bounds],
            "forced": forced,
        }
        for name, values in columns.items():
            slot.choice.host[name][:count] = torch.tensor(values, dtype=torch.int32)

        def sample() -> None:
            slot.choice.upload()
            choice = {name: field[:count].long() for name, field in slot.choice.device.items()}
            position, probability = self._sampler(
                slot.logits[:count], choice["state"], choice["low"], choice["high"]
            )
            sampled = self._alphabet[position].long()
            self._token_by_row[choice["rows"]] = torch.where(choice["forced"] < 0, sampled, choice["forced"])
            slot.positions[:count] = position
            slot.probabilities[:count] = probability

        def copy() -> None:
            slot.host_positions[:count].copy_(slot.positions[:count], non_blocking=True)
            slot.host_probabilities[:count].copy_(slot.probabilities[:count], non_blocking=True)

        self._copied[slot_index] = self._device.copy(copy, after=self._device.compute(sample))

    def wait(self, slot_index: int, count: int) -> Sampled:
        """The tokens of a finalized step; raises what its device work raised."""
        event = self._copied[slot_index]
        assert event is not None
        event.wait()
        slot = self._slots[slot_index]
        return Sampled(slot.host_positions[:count].tolist(), slot.host_probabilities[:count].tolist())

    def was_forced(self, slot_index: int) -> list[bool]:
        return self._forced[slot_index]

    def _width(self, tokens: int) -> int:
        pages = -(-tokens // self.page_size)
        return -(-pages // TABLE_STEP) * TABLE_STEP

    def _whole(self, features: torch.Tensor, tables: torch.Tensor) -> Paged:
        """Image tokens that see each other both ways."""
        count, tokens = features.shape[:2]
        index = torch.arange(tokens, device=features.device).expand(count, -1)
        prefix = torch.full((count,), tokens, device=features.device)
        return Paged(self._cache, index, tables, prefix)

    def _prompted(
        self, embeds: torch.Tensor, tables: torch.Tensor, lengths: torch.Tensor, start: int, shared: bool
    ) -> Paged:
        """Prompt tokens after an image prefix, or image and prompt as one prefix."""
        count, tokens = embeds.shape[:2]
        where = embeds.device
        index = torch.arange(start, start + tokens).expand(count, -1)
        ends = self._model.image_tokens + lengths
        prefix = torch.zeros_like(ends) if shared else ends
        valid = index < ends[:, None]
        return Paged(self._cache, index.to(where), tables.to(where), prefix.to(where), valid.to(where))


def _padded(lists: list[list[int]], value: int) -> torch.Tensor:
    """Ragged lists -> int64 [n, longest]."""
    longest = max((len(entry) for entry in lists), default=0)
    return torch.tensor([[*entry, *[value] * (longest - len(entry))] for entry in lists], dtype=torch.int64)
