"""The fixed buffers of a step in flight, on the device and on the host."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


class Packed:
    """Named int64 fields of one length that travel to the device as one copy."""

    def __init__(self, names: tuple[str, ...], length: int, device: torch.device) -> None:
        shape = (len(names), length)
        self._host = torch.zeros(shape, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._device = torch.zeros(shape, dtype=torch.int64, device=device)
        array = self._host.numpy()
        self.host: dict[str, npt.NDArray[np.int64]] = {name: array[i] for i, name in enumerate(names)}
        self.device: dict[str, torch.Tensor] = {name: self._device[i] for i, name in enumerate(names)}

    def upload(self) -> None:
        """On the compute stream."""
        self._device.copy_(self._host, non_blocking=True)


class DecodeSlot:
    """One of two; belongs to a step from its launch until its commit has ended.

    inputs: row and place in its sequence of each token of a decode step, [max_batch].
    given: rows that a prefill step was just given, [max_batch].
    choice: row, state, and `Cursors.bounds` of its sampling; seed and count where it is not greedy.
    sampled, host_sampled: alphabet positions and probabilities, [2, max_batch].
    """

    def __init__(self, rows: int, logits: int, device: torch.device) -> None:
        self.inputs = Packed(("row", "index"), rows, device)
        self.given = Packed(("row",), rows, device)
        self.choice = Packed(("row", "state", "low", "high"), rows, device)
        self.chance = Packed(("temperature", "top_p", "seed", "count"), rows, device)
        self.logits = torch.zeros(rows, logits, device=device)
        self.sampled = torch.zeros(2, rows, dtype=torch.float64, device=device)
        pinned = device.type == "cuda"
        self._host_sampled = torch.zeros(2, rows, dtype=torch.float64, pin_memory=pinned)
        array = self._host_sampled.numpy()
        self.positions, self.probabilities = array[0], array[1]

    def download(self) -> None:
        """On the copy stream."""
        self._host_sampled.copy_(self.sampled, non_blocking=True)
