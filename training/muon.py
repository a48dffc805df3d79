"""Muon: momentum whose update is orthogonalised, for 2-D hidden weights (Jordan et al., 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch


def newton_schulz(matrices: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """[n, r, c] -> the nearest (semi-)orthogonal matrices, approximately, by a quintic iteration in fp32."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Matrices of one shape are updated together; the update is scaled by 0.2 sqrt(max(shape))."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for shape, params in by_shape.items():
                updates = []
                for p in params:
                    velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                    velocity.lerp_(p.grad, 1 - group["momentum"])
                    updates.append(p.grad.lerp(velocity, group["momentum"]))
                direction = newton_schulz(torch.stack(updates))
                for p, d in zip(params, direction, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(d, alpha=-group["lr"] * 0.2 * max(shape) ** 0.5)
