"""Moondream written plainly from the published facts: one sequence, no cache, every step from the start.

Source: the description of crops, tower, decoder and region head that the adapter was written from; none of
the adapter's code is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from tests.models.moondream_checkpoints import PATCH, Kind

Weights = dict[str, torch.Tensor]


@dataclass
class Written:
    """bins: ("c", bin) and ("s", width bin, height bin), in order.  places: as written, not clamped.

    gaps: how far the best choice was from the next, of each decision.
    """

    bins: list[tuple] = field(default_factory=list)
    places: list[tuple[float, ...]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)


class Moondream:
    def __init__(self, kind: Kind, tensors: Weights) -> None:
        self.kind, self.w = kind, {name: tensor.double() for name, tensor in tensors.items()}

    @torch.inference_mode()
    def answer(self, task: str, image: np.ndarray, prompt: list, most: int) -> Written:
        """prompt: token ids, and embeddings where no token stands."""
        written = Written()
        bos = self.w["text.wte"][0][None]
        rows = torch.stack([p if isinstance(p, torch.Tensor) else self.w["text.wte"][p] for p in prompt])
        embeds = torch.cat([bos, self.image(image), rows])
        hidden = self.last(embeds)
        while self.goes_on(hidden, written) and len(written.places) < most:
            x = self.best("coord", hidden, written)[0]
            embeds = torch.cat([embeds, self.coordinate(x / 1024)[None]])
            y = self.best("coord", self.last(embeds), written)[0]
            embeds = torch.cat([embeds, self.coordinate(y / 1024)[None]])
            hidden = self.last(embeds)
            written.bins += [("c", x), ("c", y)]
            if task == "point":
                written.places.append((x / 1024, y / 1024))
                continue
            w, h = self.best("size", hidden, written)
            written.bins.append(("s", w, h))
            wide, tall = (2 ** (b / 1023 * 10 - 10) for b in (w, h))
            embeds = torch.cat([embeds, self.size(wide, tall)[None]])
            hidden = self.last(embeds)
            left, top = x / 1024 - wide / 2, y / 1024 - tall / 2
            written.places.append((left, top, left + wide, top + tall))
        return written

    # --- numbers -------------------------------------------------------------------------------------

    def goes_on(self, hidden: torch.Tensor, written: Written) -> bool:
        logits = self.linear("text.lm_head", self.norm("text.post_ln", hidden))
        best = logits.topk(2)
        assert set(best.indices.tolist()) == {0, 5}
        written.gaps.append(float(best.values[0] - best.values[1]))
        written.scores.append(float(logits[[0, 5]].softmax(0)[1]))
        return int(best.indices[0]) != 0

    def best(self, name: str, hidden: torch.Tensor, written: Written) -> list[int]:
        if "region.ln.weight" in self.w:
            hidden = self.norm("region.ln", hidden)
        at = f"region.{name}_decoder"
        logits = self.linear(at, hidden) if f"{at}.weight" in self.w else self.mlp(at, hidden)
        found = []
        for part in logits.split(1024):
            best = part.topk(2)
            written.gaps.append(float(best.values[0] - best.values[1]))
            found.append(int(best.indices[0]))
        return found

    def coordinate(self, value: float) -> torch.Tensor:
        return self.number("coord", torch.tensor([value], dtype=torch.float64))

    def size(self, width: float, height: float) -> torch.Tensor:
        return self.number("size", torch.tensor([width, height], dtype=torch.float64))

    def number(self, name: str, values: torch.Tensor) -> torch.Tensor:
        angle = 2 * math.pi * values @ self.w[f"region.{name}_features"]
        return self.linear(f"region.{name}_encoder", torch.cat([angle.cos(), angle.sin()]))

    # --- text ----------------------------------------------------------------------------------------

    def last(self, embeds: torch.Tensor) -> torch.Tensor:
        """The last hidden state, before the last norm."""
        return self.hidden(embeds)[-1]

    def hidden(self, embeds: torch.Tensor) -> torch.Tensor:
        h = embeds
        for layer in range(self.kind.layers):
            at = f"text.blocks.{layer}"
            x = self.norm(f"{at}.ln", h)
            moe = f"{at}.mlp.router.weight" in self.w
            h = h + self.attention(f"{at}.attn", x) + (self.experts if moe else self.mlp)(f"{at}.mlp", x)
        return h

    def attention(self, at: str, x: torch.Tensor) -> torch.Tensor:
        kind, length = self.kind, len(x)
        dim = kind.dim // kind.heads
        mixed = self.linear(f"{at}.qkv", x)
        q, k, v = mixed.split([kind.heads * dim, kind.kv_heads * dim, kind.kv_heads * dim], dim=1)
        q, k, v = (t.reshape(length, -1, dim) for t in (q, k, v))
        if kind.third:
            t = F.gelu(mixed)
            place = torch.arange(length, dtype=torch.float64) + 1
            p = 0.5 + torch.sigmoid(self.w[f"{at}.tau.alpha"] * place.log()[:, None])
            q = q * (torch.tanh(t @ self.w[f"{at}.tau.wq"].T) + p)[..., None]
            v = v * (torch.tanh(t @ self.w[f"{at}.tau.wv"].T) + p)[..., None]
        q, k = self.rotated(q), self.rotated(k)
        k, v = (t.repeat_interleave(kind.heads // kind.kv_heads, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(dim)
        place, prefix = torch.arange(length), kind.grid**2 + 1
        seen = (place <= place[:, None]) | ((place < prefix) & (place[:, None] < prefix))
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        return self.linear(f"{at}.proj", torch.einsum("hqk,khd->qhd", weights, v).reshape(length, -1))

    def rotated(self, t: torch.Tensor) -> torch.Tensor:
        half = t.shape[-1] // 4
        out = t.clone()
        for i in range(half):
            angle = torch.arange(len(t), dtype=torch.float64)[:, None] / self.kind.theta ** (i / half)
            out[..., 2 * i] = t[..., i] * angle.cos() - t[..., i + half] * angle.sin()
            out[..., 2 * i + 1] = t[..., i] * angle.sin() + t[..., i + half] * angle.cos()
        return out

    def experts(self, at: str, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        for token, scores in enumerate(self.linear(f"{at}.router", x)):
            best = scores.topk(self.kind.chosen)
            for share, e in zip(best.values.softmax(0), best.indices.tolist(), strict=True):
                h, g = (self.w[f"{at}.fc1.weight"][e] @ x[token]).chunk(2)
                out[token] += share * (self.w[f"{at}.fc2.weight"][e] @ (F.gelu(h) * (g + 1)))
        return out

    # --- image ---------------------------------------------------------------------------------------

    def image(self, image: np.ndarray) -> torch.Tensor:
        kind = self.kind
        side, margin = kind.grid * PATCH, kind.margin * PATCH
        window = side - 2 * margin
        height, width = image.shape[:2]
        rows, columns = tiles(height - 2 * margin, width - 2 * margin, window, kind.most_crops)
        picture = Image.fromarray(image)
        whole = self.tower(picture.resize((side, side), Image.Resampling.LANCZOS))
        large = picture.resize(
            (columns * window + 2 * margin, rows * window + 2 * margin), Image.Resampling.LANCZOS
        )
        step = kind.grid - 2 * kind.margin
        canvas = torch.zeros(rows * step + 2 * kind.margin, columns * step + 2 * kind.margin, whole.shape[-1])
        canvas = canvas.double()
        for r in range(rows):
            for c in range(columns):
                crop = large.crop((c * window, r * window, c * window + side, r * window + side))
                seen = self.tower(crop).reshape(kind.grid, kind.grid, -1)
                for i in range(kind.margin if r else 0, kind.grid - kind.margin * (r < rows - 1)):
                    for j in range(kind.margin if c else 0, kind.grid - kind.margin * (c < columns - 1)):
                        canvas[r * step + i, c * step + j] = seen[i, j]
        pooled = F.adaptive_avg_pool2d(canvas.permute(2, 0, 1), kind.grid).flatten(1).T
        return self.mlp("vision.proj_mlp", torch.cat([whole, pooled], dim=1))

    def tower(self, crop: Image.Image) -> torch.Tensor:
        pixels = (torch.from_numpy(np.array(crop)).double() / 255 - 0.5) / 0.5
        grid = self.kind.grid
        cut = [
            pixels[i * PATCH : (i + 1) * PATCH, j * PATCH : (j + 1) * PATCH].permute(2, 0, 1).reshape(-1)
            for i in range(grid)
            for j in range(grid)
        ]
        h = self.linear("vision.patch_emb", torch.stack(cut)) + self.w["vision.pos_emb"][0]
        for layer in range(2):
            at = f"vision.blocks.{layer}"
            q, k, v = self.linear(f"{at}.attn.qkv", self.norm(f"{at}.ln1", h)).chunk(3, dim=1)
            heads = []
            for i in range(2):
                part = slice(16 * i, 16 * (i + 1))
                heads.append((q[:, part] @ k[:, part].T / 4).softmax(-1) @ v[:, part])
            h = h + self.linear(f"{at}.attn.proj", torch.cat(heads, dim=1))
            h = h + self.mlp(f"{at}.mlp", self.norm(f"{at}.ln2", h))
        return self.norm("vision.post_ln", h)

    # --- layers --------------------------------------------------------------------------------------

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def mlp(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return self.linear(f"{name}.fc2", F.gelu(self.linear(f"{name}.fc1", x), approximate="tanh"))

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"])


def tiles(height: int, width: int, window: int, most: int) -> tuple[int, int]:
    if min(height, width) <= window:
        return 1, 1
    low_h, low_w = math.ceil(height / window), math.ceil(width / window)
    if low_h * low_w > most:
        ratio = math.sqrt(most / (low_h * low_w))
        return max(1, int(low_h * ratio)), max(1, int(low_w * ratio))
    h, w = int(math.sqrt(most * height / width)), int(math.sqrt(most * width / height))
    h, w = max(h, low_h), max(w, low_w)
    if h * w > most and w > h:
        w = most // h
    elif h * w > most:
        h = most // w
    return h, w
