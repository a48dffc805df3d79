"""The forwards of the three kinds of step, as work for the compute stream."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch

from engine.adapters.bank import AdapterBank
from engine.attention import KvCache, Paged
from engine.device.base import Device
from engine.device.cuda import upload
from engine.features import FeatureCache
from engine.models.base import Encoded, Model, Pixels
from engine.sequence import Sequence
from engine.slots import DecodeSlot
from engine.steps import Extend, Prefill

Work = Callable[[], None]
CACHED_FEATURES = 64
READING = 16
"""Tokens."""


@dataclass(frozen=True, slots=True)
class NewImage:
    """An image that a step computes.

    adapter: slot.  key: of its KV or features.  pages: for its KV.
    """

    pixels: Pixels
    adapter: int
    key: Hashable
    pages: list[int]


class Forwards:
    """Each method returns work that leaves the logits of a step in its slot.

    tables: int64 [rows, width] block table of every row, on the device.
    token_by_row: int64 [rows] the last sampled token of every row, on the device.
    shift_by_row: int64 [rows] what the position of a row's tokens exceeds their place by, on the device.
    adapter_by_row: int64 [rows] slot of every row's adapter, on the device.
    """

    def __init__(
        self,
        model: Model,
        device: Device,
        cache: KvCache,
        tables: torch.Tensor,
        token_by_row: torch.Tensor,
        adapters: AdapterBank | None = None,
    ) -> None:
        self._model, self._device, self._cache, self._adapters = model, device, cache, adapters
        self.tables, self._token_by_row = tables, token_by_row
        self.shift_by_row = torch.zeros_like(token_by_row)
        self.adapter_by_row = torch.zeros_like(token_by_row)
        self._shared = model.info.prefix == "image"
        self._hidden = model.embed(torch.zeros(1, dtype=torch.int64, device=device.torch_device)).shape[-1]
        self.features = FeatureCache(CACHED_FEATURES)
        self.vision_images = 0
        self.prefill_tokens = 0

    def decode(self, slot: DecodeSlot, batch: int, width: int) -> Work:
        """One token of each of `batch` rows; block tables are read `width` pages wide."""

        def forward(_: slice) -> None:
            rows = slot.inputs.device["row"][:batch]
            index = slot.inputs.device["index"][:batch, None]
            paged = self._paged(rows, index, width, torch.zeros_like(rows))
            with self._adapting_rows(rows):
                hidden = self._model.forward(self._model.embed(self._token_by_row[rows, None]), paged)
            slot.logits[:batch] = self._model.head(hidden[:, 0])

        def work() -> None:
            slot.inputs.upload()
            self._device.divide(1, self._size(batch), forward)

        return work

    def extend(self, slot: DecodeSlot, step: Extend, width: int) -> Work:
        """Known tokens of each row."""
        starts = torch.tensor(step.starts)
        tokens, lengths = padded(step.runs)
        rows = torch.tensor([s.row for s in step.sequences])

        def work() -> None:
            embeds = self._model.embed(upload(tokens, self._device.torch_device))
            self._append(slot, embeds, rows, starts, lengths, width, torch.zeros_like(starts))

        return work

    def prefill(self, slot: DecodeSlot, step: Prefill, width: int) -> Work:
        """The images that need it, then every prompt."""
        if not self._shared:
            return self._prefill_whole(slot, step, width)
        new = [_new_image(s, prefix.key, prefix.pages) for prefix, s in step.new_prefixes.items()]
        tails = [
            (s.prefix.pages[-1], s.pages[0])
            for s in step.sequences
            if s.prefix is not None and s.image_tokens % self._cache.page_size
        ]
        prompts, lengths = padded([s.prompt for s in step.sequences])
        rows = torch.tensor([s.row for s in step.sequences])
        starts = torch.tensor([s.image_tokens for s in step.sequences])

        def work() -> None:
            for alike in _grouped(new):
                tokens = alike[0].pixels.tokens
                self.vision_images += len(alike)
                self.prefill_tokens += len(alike) * tokens
                self._device.divide(len(alike), self._size(tokens), partial(self._write_prefixes, alike))
            if tails:
                self._cache.copy_pages(upload(torch.tensor(tails), self._device.torch_device))
            embeds = self._model.embed(upload(prompts, self._device.torch_device))
            self.prefill_tokens += int(lengths.sum())
            self._append(slot, embeds, rows, starts, lengths, width, torch.zeros_like(starts))

        return work

    def _prefill_whole(self, slot: DecodeSlot, step: Prefill, width: int) -> Work:
        """Image and prompt of every sequence, which see each other."""
        keys = [self._features_key(s) for s in step.sequences]
        by_key = dict(zip(keys, step.sequences, strict=True))
        new = [_new_image(s, key, []) for key, s in by_key.items()]
        prompts, lengths = padded([s.prompt for s in step.sequences])
        rows = torch.tensor([s.row for s in step.sequences])
        starts = torch.zeros_like(lengths)
        ends = lengths + torch.tensor([s.image_tokens for s in step.sequences])

        def work() -> None:
            self._compute_features(new)
            features = [self._feature(key) for key in keys]
            embeds = self._model.embed(upload(prompts, self._device.torch_device))
            whole = torch.cat([torch.stack([f.embeds for f in features]), embeds], dim=1)
            self.prefill_tokens += int(ends.sum())
            self._append(slot, whole, rows, starts, ends, width, ends)

        return work

    def _append(
        self,
        slot: DecodeSlot,
        embeds: torch.Tensor,
        rows: torch.Tensor,
        starts: torch.Tensor,
        lengths: torch.Tensor,
        width: int,
        prefix: torch.Tensor,
    ) -> None:
        """embeds [B, T, W] to the ends of rows; logits after each row's last of `lengths` tokens."""
        where = embeds.device
        rows, starts, lengths, prefix = (upload(t, where) for t in (rows, starts, lengths, prefix))
        offsets = torch.arange(embeds.shape[1], device=where)
        index = starts[:, None] + offsets
        valid = offsets < lengths[:, None]
        paged = self._paged(rows, index, width, prefix, valid)

        def forward(_: slice) -> None:
            with self._adapting_rows(rows):
                hidden = self._model.forward(embeds, paged)
            last = hidden[torch.arange(len(rows), device=where), lengths - 1]
            slot.logits[: len(rows)] = self._model.head(last)

        self._device.divide(1, self._size(embeds.shape[0] * embeds.shape[1]), forward)

    def _size(self, tokens: int) -> int:
        """See `Device.divide`; reading the weights takes as long as some tokens do."""
        return max(tokens, READING) * self._hidden**2

    def _paged(
        self,
        rows: torch.Tensor,
        index: torch.Tensor,
        width: int,
        prefix: torch.Tensor,
        valid: torch.Tensor | None = None,
    ) -> Paged:
        return Paged(
            self._cache, index, self.tables[rows, :width], prefix, valid, shift=self.shift_by_row[rows]
        )

    def _adapting_rows(self, rows: torch.Tensor) -> AbstractContextManager[None]:
        """Around a forward of this thread: each row uses its own adapter."""
        return nullcontext() if self._adapters is None else self._adapters.using(self.adapter_by_row[rows])

    def _adapting(self, slot: int) -> AbstractContextManager[None]:
        """Around a forward of this thread that uses one adapter."""
        return nullcontext() if self._adapters is None else self._adapters.using(slot)

    def _write_prefixes(self, alike: list[NewImage], part: slice) -> None:
        """A part of images of one length and adapter, into pages of their own."""
        new = alike[part]
        count, tokens = len(new), new[0].pixels.tokens
        where = self._device.torch_device
        index = torch.arange(tokens, device=where).expand(count, -1)
        prefix = torch.full((count,), tokens if self._model.both_ways else 0, device=where)
        tables = upload(torch.tensor([image.pages for image in new]), where)
        with self._adapting(new[0].adapter):
            images = self._model.encode_images([image.pixels for image in new])
            embeds = torch.stack([image.embeds for image in images])
            self._model.forward(embeds, Paged(self._cache, index, tables, prefix), images)

    def _compute_features(self, images: list[NewImage]) -> None:
        missing = [image for image in images if self.features.get(image.key) is None]
        self.vision_images += len(missing)
        encoded: dict[Hashable, Encoded] = {}
        for alike in _grouped(missing):
            size = self._size(alike[0].pixels.tokens)
            self._device.divide(len(alike), size, partial(self._encode, alike, encoded))
        for image in missing:
            self.features.put(image.key, encoded[image.key])

    def _encode(self, alike: list[NewImage], encoded: dict[Hashable, Encoded], part: slice) -> None:
        """A part of images of one adapter."""
        new = alike[part]
        with self._adapting(new[0].adapter):
            found = self._model.encode_images([image.pixels for image in new])
        encoded.update(zip([image.key for image in new], found, strict=True))

    def _features_key(self, sequence: Sequence) -> Hashable:
        """Of vision features: the adapter counts only where it changes them."""
        adapter = sequence.ask.request.adapter
        changed = self._adapters is not None and self._adapters.changes_images(adapter)
        return sequence.image_key, adapter if changed else None

    def _feature(self, key: Hashable) -> Encoded:
        features = self.features.get(key)
        assert features is not None
        return features


def _new_image(sequence: Sequence, key: Hashable, pages: list[int]) -> NewImage:
    assert sequence.pixels is not None
    return NewImage(sequence.pixels, sequence.adapter_slot, key, pages)


def _grouped(images: list[NewImage]) -> list[list[NewImage]]:
    """Images of one length and one adapter go together: no prefix is padded, no layer chooses by row."""
    groups: dict[tuple[int, int], list[NewImage]] = {}
    for image in images:
        groups.setdefault((image.pixels.tokens, image.adapter), []).append(image)
    return list(groups.values())


def padded(lists: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged lists -> int64 [n, longest] padded with 0, and their lengths [n]."""
    longest = max(map(len, lists))
    rows = [[*entry, *[0] * (longest - len(entry))] for entry in lists]
    return torch.tensor(rows, dtype=torch.int64), torch.tensor([len(entry) for entry in lists])
