"""The forwards of the three kinds of step, as work for the compute stream."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.attention import KvCache, Paged
from engine.device.base import Device
from engine.device.cuda import upload
from engine.features import FeatureCache
from engine.models.base import Model
from engine.slots import DecodeSlot
from engine.steps import Extend, Prefill

Work = Callable[[], None]
CACHED_FEATURES = 64


class Forwards:
    """Each method returns work that leaves the logits of a step in its slot.

    tables: int64 [rows, width] block table of every row, on the device.
    token_by_row: int64 [rows] the last sampled token of every row, on the device.
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
        self._shared = model.info.prefix == "image"
        self.image_tokens = model.image_tokens
        self.features = FeatureCache(CACHED_FEATURES)
        self.vision_images = 0
        self.prefill_tokens = 0

    def decode(self, slot: DecodeSlot, batch: int, width: int) -> Work:
        """One token of each of `batch` rows; block tables are read `width` pages wide."""

        def work() -> None:
            slot.inputs.upload()
            rows = slot.inputs.device["row"][:batch]
            index = slot.inputs.device["index"][:batch, None]
            paged = Paged(self._cache, index, self.tables[rows, :width], torch.zeros_like(rows))
            hidden = self._model.forward(self._model.embed(self._token_by_row[rows, None]), paged)
            slot.logits[:batch] = self._model.head(hidden[:, 0])

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
        prefixes = [p.pages for p in step.new_prefixes]
        pixels = list(step.new_prefixes.values())
        images = {s.image_key: s.pixels for s in step.sequences}
        keys = [s.image_key for s in step.sequences]
        prompts, lengths = padded([s.prompt for s in step.sequences])
        rows = torch.tensor([s.row for s in step.sequences])
        starts = torch.full_like(lengths, self.image_tokens)

        def work() -> None:
            embeds = self._model.embed(upload(prompts, self._device.torch_device))
            self.prefill_tokens += int(lengths.sum())
            if self._shared:
                if prefixes:
                    self._write_prefixes(pixels, torch.tensor(prefixes))
                self._append(slot, embeds, rows, starts, lengths, width, torch.zeros_like(starts))
                return
            self._compute_features(images)
            features = torch.stack([self._feature(key) for key in keys])
            self.prefill_tokens += self.image_tokens * len(keys)
            whole = torch.cat([features, embeds], dim=1)
            ends = starts + lengths
            self._append(slot, whole, rows, torch.zeros_like(starts), ends, width, ends)

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
        paged = Paged(self._cache, index, self.tables[rows, :width], prefix, valid)
        hidden = self._model.forward(embeds, paged)
        last = hidden[torch.arange(len(rows), device=where), lengths - 1]
        slot.logits[: len(rows)] = self._model.head(last)

    def _write_prefixes(self, pixels: list[torch.Tensor], tables: torch.Tensor) -> None:
        """Image tokens that see each other both ways, into pages of their own."""
        features = self._model.encode_images(upload(torch.stack(pixels), self._device.torch_device))
        count, tokens = features.shape[:2]
        self.vision_images += count
        self.prefill_tokens += count * tokens
        index = torch.arange(tokens, device=features.device).expand(count, -1)
        prefix = torch.full((count,), tokens, device=features.device)
        table = upload(tables, features.device)
        self._model.forward(features, Paged(self._cache, index, table, prefix))

    def _compute_features(self, images: dict[bytes, torch.Tensor | None]) -> None:
        missing = {k: p for k, p in images.items() if p is not None and self.features.get(k) is None}
        if missing:
            self.vision_images += len(missing)
            stacked = upload(torch.stack(list(missing.values())), self._device.torch_device)
            for key, features in zip(missing, self._model.encode_images(stacked), strict=True):
                self.features.put(key, features)

    def _feature(self, key: bytes) -> torch.Tensor:
        features = self.features.get(key)
        assert features is not None
        return features


def padded(lists: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ragged lists -> int64 [n, longest] padded with 0, and their lengths [n]."""
    longest = max(map(len, lists))
    rows = [[*entry, *[0] * (longest - len(entry))] for entry in lists]
    return torch.tensor(rows, dtype=torch.int64), torch.tensor([len(entry) for entry in lists])
