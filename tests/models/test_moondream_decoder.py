"""The Moondream-shaped decoder over pages against a full forward written from the published facts."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from engine.attention import KvCache, Paged
from engine.models.moondream_network import Network, random_network
from engine.models.moondream_region import EXACT, EXACT_SIZE, MILLION, SIZE, side
from engine.models.moondream_text import Shape, rotate

SHAPE = Shape(
    dim=64,
    ff_dim=128,
    layers=3,
    vocab=96,
    heads=4,
    kv_heads=4,
    coordinate_features=16,
    size_features=16,
    region_inner=32,
)
PREFIX, PAGE, CPU = 18, 16, torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> Network:
    return random_network(SHAPE, CPU, torch.float32, seed=1)


def full_forward(model: Network, embeds: torch.Tensor, prefix: int) -> torch.Tensor:
    """[T, W] -> [T, W] before post_ln, in one go, from the state dict alone."""
    w = {name: tensor.double() for name, tensor in model.state_dict().items()}
    h, length, heads, dim = embeds.double(), len(embeds), SHAPE.heads, SHAPE.head_dim
    place = torch.arange(length)
    seen = (place <= place[:, None]) | ((place < prefix) & (place[:, None] < prefix))
    half = SHAPE.rotary // 2
    for layer in range(SHAPE.layers):
        at = f"text.blocks.{layer}."
        x = F.layer_norm(h, (SHAPE.dim,), w[at + "ln.weight"], w[at + "ln.bias"])
        qkv = F.linear(x, w[at + "attn.qkv.weight"], w[at + "attn.qkv.bias"])
        q, k, v = qkv.reshape(length, 3, heads, dim).unbind(1)
        turned = []
        for t in (q, k):
            out = t.clone()
            for i in range(half):
                angle = place.double() / 10000.0 ** (i / half)
                c, s = angle.cos()[:, None], angle.sin()[:, None]
                out[..., 2 * i] = t[..., i] * c - t[..., i + half] * s
                out[..., 2 * i + 1] = t[..., i] * s + t[..., i + half] * c
            turned.append(out)
        scores = torch.einsum("qhd,khd->hqk", *turned) / math.sqrt(dim)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v).reshape(length, -1)
        attention = F.linear(mixed, w[at + "attn.proj.weight"], w[at + "attn.proj.bias"])
        inner = F.gelu(F.linear(x, w[at + "mlp.fc1.weight"], w[at + "mlp.fc1.bias"]), approximate="tanh")
        h = h + attention + F.linear(inner, w[at + "mlp.fc2.weight"], w[at + "mlp.fc2.bias"])
    return h


@torch.inference_mode()
def test_paged_decoding_is_the_full_forward(model: Network) -> None:
    tokens = 40
    ids = torch.randint(0, SHAPE.vocab + 1024, (2, tokens), generator=torch.Generator().manual_seed(2))
    embeds = model.embed(ids)
    cache = KvCache(SHAPE.layers, 9, PAGE, SHAPE.kv_heads, SHAPE.head_dim, torch.float32, CPU)
    table = torch.tensor([[5, 2, 8], [1, 7, 3]])
    prefix, none = torch.tensor([PREFIX, PREFIX]), torch.zeros(2, dtype=torch.int64)
    index = torch.arange(tokens).expand(2, -1)
    parts = [model(embeds[:, :PREFIX], Paged(cache, index[:, :PREFIX], table, prefix))]
    parts.append(
        model(embeds[:, PREFIX : PREFIX + 5], Paged(cache, index[:, PREFIX : PREFIX + 5], table, none))
    )
    parts += [
        model(embeds[:, t : t + 1], Paged(cache, index[:, t : t + 1], table, none))
        for t in range(PREFIX + 5, tokens)
    ]
    paged = torch.cat(parts, dim=1)
    for row in range(2):
        expected = full_forward(model, embeds[row], PREFIX)
        torch.testing.assert_close(paged[row].double(), expected, atol=1e-4, rtol=1e-4)


def test_rotation_keeps_lengths_and_the_other_dimensions() -> None:
    x = torch.randn(1, 3, 2, 16, generator=torch.Generator().manual_seed(3))
    angle = torch.randn(1, 3, 1, 4, generator=torch.Generator().manual_seed(4))
    turned = rotate(x, angle.cos(), angle.sin())
    assert torch.equal(turned[..., 8:], x[..., 8:])
    torch.testing.assert_close(turned[..., :8].norm(dim=-1), x[..., :8].norm(dim=-1))
    assert torch.equal(rotate(x, torch.ones(1, 3, 1, 4), torch.zeros(1, 3, 1, 4))[..., 1:8:2], x[..., 4:8])


def test_coordinates_and_tokens_have_embeddings_of_their_own(model: Network) -> None:
    ids = torch.tensor([3, SHAPE.vocab, SHAPE.vocab + 512])
    token, zero, middle = model.embed(ids)
    assert torch.equal(token, model.text.wte[3])
    for embedding, value in ((zero, 0.0), (middle, 0.5)):
        angle = 2 * math.pi * value * model.region.coord_features[0]
        wave = torch.cat([angle.cos(), angle.sin()])
        torch.testing.assert_close(embedding, model.region.coord_encoder(wave))


def test_sizes_are_logarithmic(model: Network) -> None:
    region = model.region
    sizes = side(torch.tensor([0, 1023]))
    torch.testing.assert_close(sizes, torch.tensor([2.0**-10, 1.0]))
    angle = 2 * math.pi * (sizes[0] * region.size_features[0] + sizes[1] * region.size_features[1])
    expected = region.size_encoder(torch.cat([angle.cos(), angle.sin()]))
    torch.testing.assert_close(model.embed(torch.tensor(SHAPE.vocab + SIZE + 1023)), expected)
    wide, tall = model.embed(SHAPE.vocab + SIZE + torch.tensor([1023 * 1024, 1023]))
    assert not torch.allclose(wide, tall)


def test_exact_values_are_embedded_as_bins_of_the_same_value(model: Network) -> None:
    bins = model.embed(SHAPE.vocab + torch.tensor([512, SIZE + 1023 * 1024 + 1023, 0]))
    whole = MILLION - 1
    exact = torch.tensor([EXACT + whole // 2, EXACT_SIZE + whole * MILLION + whole, EXACT])
    torch.testing.assert_close(model.embed(SHAPE.vocab + exact), bins)


def test_the_end_wins_exactly_if_it_beats_the_announcement(model: Network) -> None:
    hidden = torch.randn(64, SHAPE.dim, generator=torch.Generator().manual_seed(5))
    logits = model.head(hidden)
    assert logits.shape == (64, 2 + 3 * 1024)
    marks = model.text.lm_head(model.text.post_ln(hidden))
    ends = marks[:, 0] > marks[:, 1]
    assert 0 < ends.sum() < 64
    assert torch.equal(logits[:, 0] > logits[:, 1], ends)
    assert torch.equal(logits[:, 2:1026], model.region.coord_decoder(hidden))
    assert torch.equal(logits[:, 1026:], model.region.size_decoder(hidden))
