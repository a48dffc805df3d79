"""The forwards of the three kinds of step, as work for the compute stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from engine.attention import KvCache, Paged
from engine.device.base import Device
from engine.device.cuda import upload
from engine.features import FeatureCache
from engine.models.base import Encoded, Model, Pixels
from engine.slots import DecodeSlot
from engine.steps import Extend, Prefill

Work = Callable[[], None]
CACHED_FEATURES = 64
READING = 16
"""Tokens."""


class Forwards:
    """Each method returns work that leaves the logits of a step in its slot.

    tables: int64 [rows, width] block table of every row, on the device.
    token_by_row: int64 [rows] the last sampled token of every row, on the device.
    shift_by_row: int64 [rows] what the position of a row's tokens exceeds their place by, on the device.
    """

    def __init__(
        self,
        model: Model,
        device: Device,
        cache: KvCache,
        tables: torch.Tensor,
        token_by_row: torch.Tensor,
    ) -> None:
        self._model, self._device, self._cache = model, device, cache
        self.tables, self._token_by_row = tables, token_by_row
        self.shift_by_row = torch.zeros_like(token_by_row)
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
        new = [(pixels, prefix.pages) for prefix, pixels in step.new_prefixes.items()]
        tails = [
            (s.prefix.pages[-1], s.pages[0])
            for s in step.sequences
            if s.prefix is not None and s.image_tokens % self._cache.page_size
        ]
        prompts, lengths = padded([s.prompt for s in step.sequences])
        rows = torch.tensor([s.row for s in step.sequences])
        starts = torch.tensor([s.image_tokens for s in step.sequences])

        def work() -> None:
            for alike in _by_tokens(new):
                self.vision_images += len(alike)
                self.prefill_tokens += len(alike) * alike[0][0].tokens
                size = self._size(alike[0][0].tokens)
                self._device.divide(len(alike), size, partial(self._write_prefixes, alike))
            if tails:
                self._cache.copy_pages(upload(torch.tensor(tails), self._device.torch_device))
            embeds = self._model.embed(upload(prompts, self._device.torch_device))
            self.prefill_tokens += int(lengths.sum())
            self._append(slot, embeds, rows, starts, lengths, width, torch.zeros_like(starts))

        return work

    def _prefill_whole(self, slot: DecodeSlot, step: Prefill, width: int) -> Work:
        """Image and prompt of every sequence, which see each other."""
        images = {s.image_key: s.pixels for s in step.sequences}
        keys = [s.image_key for s in step.sequences]
        prompts, lengths = padded([s.prompt for s in step.sequences])
        rows = torch.tensor([s.row for s in step.sequences])
        starts = torch.zeros_like(lengths)
        ends = lengths + torch.tensor([s.image_tokens for s in step.sequences])

        def work() -> None:
            self._compute_features(images)
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

    def _write_prefixes(self, alike: list[tuple[Pixels, list[int]]], part: slice) -> None:
        """A part of images of one length, into pages of their own."""
        pixels, tables = zip(*alike[part], strict=True)
        images = self._model.encode_images(pixels)
        count, tokens = len(pixels), pixels[0].tokens
        where = self._device.torch_device
        index = torch.arange(tokens, device=where).expand(count, -1)
        prefix = torch.full((count,), tokens if self._model.both_ways else 0, device=where)
        paged = Paged(self._cache, index, upload(torch.tensor(tables), where), prefix)
        self._model.forward(torch.stack([image.embeds for image in images]), paged, images)

    def _compute_features(self, images: dict[bytes, Pixels | None]) -> None:
        missing = {k: p for k, p in images.items() if p is not None and self.features.get(k) is None}
        keys, pixels = list(missing), list(missing.values())

        def encode(part: slice) -> None:
            encoded.update(zip(keys[part], self._model.encode_images(pixels[part]), strict=True))

        if missing:
            self.vision_images += len(missing)
            encoded: dict[bytes, Encoded] = {}
            self._device.divide(len(missing), self._size(pixels[0].tokens), encode)
            for key in keys:
                self.features.put(key, encoded[key])

    def _feature(self, key: bytes) -> Encoded:
        features = self.features.get(key)
        assert features is not None
        return features


def _by_tokens(images: list[tuple[Pixels, list[int]]]) -> list[list[tuple[Pixels, list[int]]]]:
    """Images of one length go together, so that no prefix is padded."""
    groups: dict[int, list[tuple[Pixels, list[int]]]] = {}
    for image in images:
        groups.setdefault(image[0].tokens, []).append(image)
    return list(groups.values())


def padded(lists: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged lists -> int64 [n, longest] padded with 0, and their lengths [n]."""
    longest = max(map(len, lists))
    rows = [[*entry, *[0] * (longest - len(entry))] for entry in lists]
    return torch.tensor(rows, dtype=torch.int64), torch.tensor([len(entry) for entry in lists])
