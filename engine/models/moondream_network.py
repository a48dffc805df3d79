"""Moondream's modules put together, their tensors named as in a checkpoint."""

from __future__ import annotations

import torch
from torch import nn

from engine.attention import Paged
from engine.models.moondream_region import Region
from engine.models.moondream_text import Shape, Text
from engine.models.moondream_vision import Vision, VisionShape


class Network(nn.Module):
    """Decoder, region head and, unless it is only for timing, the vision tower."""

    def __init__(self, shape: Shape, vision: VisionShape | None = None) -> None:
        super().__init__()
        self.shape = shape
        self.text, self.region = Text(shape), Region(shape)
        if vision is not None:
            self.vision = Vision(vision, shape.dim)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """int64 [...], ids from `vocab` on as in `engine.models.moondream_region` -> [..., W]."""
        vocab = self.shape.vocab
        values = self.region.embed((ids - vocab).clamp(min=0))
        return torch.where((ids < vocab)[..., None], self.text.wte[ids.clamp(max=vocab - 1)], values)

    def forward(self, embeds: torch.Tensor, paged: Paged) -> torch.Tensor:
        """[B, T, W] -> hidden states [B, T, W]; writes KV."""
        hidden: torch.Tensor = self.text(embeds, paged)
        return hidden

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, W] -> [B, 2 + 3 * bins]: the end and going on, then a coordinate, a width and a height."""
        return torch.cat([self.text.decision(hidden), self.region.logits(hidden)], dim=-1)


def random_network(shape: Shape, device: torch.device, dtype: torch.dtype, seed: int) -> Network:
    """Untrained, without vision, with activations of ordinary size."""
    with torch.device("meta"):
        network = Network(shape)
    network = network.to(dtype).to_empty(device=device).eval().requires_grad_(False)
    chance = torch.Generator(device).manual_seed(seed)
    for name, weight in network.named_parameters():
        if ".ln." in name or "post_ln" in name:
            weight.fill_(float(name.endswith("weight")))
        else:
            spread = 1.0 if "features" in name or "wte" in name else weight.shape[-1] ** -0.5
            weight.normal_(std=0.1 if weight.ndim == 1 else spread, generator=chance)
    return network
