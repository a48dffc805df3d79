"""The fixed buffers of a step in flight, on the device and on the host."""

from __future__ import annotations

import torch

from engine.pages import PADDING_PAGE


class Packed:
    """Named int32 fields that travel to the device as one copy."""

    def __init__(self, fields: dict[str, tuple[int, ...]], device: torch.device) -> None:
        sizes = {name: int(torch.Size(shape).numel()) for name, shape in fields.items()}
        total = sum(sizes.values())
        pinned = device.type == "cuda"
        self._host = torch.zeros(total, dtype=torch.int32, pin_memory=pinned)
        self._device = torch.zeros(total, dtype=torch.int32, device=device)
        self.host: dict[str, torch.Tensor] = {}
        self.device: dict[str, torch.Tensor] = {}
        start = 0
        for name, shape in fields.items():
            part = slice(start, start + sizes[name])
            self.host[name] = self._host[part].view(shape)
            self.device[name] = self._device[part].view(shape)
            start += sizes[name]

    def upload(self) -> None:
        """On the compute stream."""
        self._device.copy_(self._host, non_blocking=True)


class DecodeSlot:
    """One of two; belongs to a step from its launch until its commit has ended.

    inputs: rows, index [B] and table [B, P] of a decode step.
    choice: state, low, high, forced [B] of its sampling (forced is a token id, -1 where sampled).
    """

    def __init__(self, rows: int, table_width: int, alphabet: int, device: torch.device) -> None:
        self.inputs = Packed({"rows": (rows,), "index": (rows,), "table": (rows, table_width)}, device)
        names = ("rows", "state", "low", "high", "forced")
        self.choice = Packed(dict.fromkeys(names, (rows,)), device)
        pinned = device.type == "cuda"
        self.logits = torch.zeros(rows, alphabet, device=device)
        self.positions = torch.zeros(rows, dtype=torch.int64, device=device)
        self.probabilities = torch.zeros(rows, device=device)
        self.host_positions = torch.zeros(rows, dtype=torch.int64, pin_memory=pinned)
        self.host_probabilities = torch.zeros(rows, pin_memory=pinned)
        self.inputs.host["table"].fill_(PADDING_PAGE)
