"""What the default model is trained on: answers with soft coordinates, and two helpers that see patches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PaliGemmaForConditionalGeneration

from training.batches import BINS, Batch
from training.checkpoint import IMAGE_TOKENS, WIDTH

MATCH_LAYERS = 2
SHAPE_WEIGHT = 2.5  # telling shapes apart is what fails most


@dataclass(frozen=True, slots=True)
class Words:
    """Token ids that the helpers write with."""

    shapes: list[int]
    colours: list[int]
    first_location: int


class PatchHead(nn.Module):
    """Reads every patch's object from the projector's output; thrown away after training.

    It writes through the tied embeddings: the four coordinates as location tokens, the colour and the
    shape as their words.  So the table learns what a place on the image is, and what a word looks like,
    long before the decoder can ask for it.
    """

    def __init__(self, words: Words) -> None:
        super().__init__()
        self.words = words
        self.covered = nn.Linear(WIDTH, 1)
        self.shape = nn.Linear(WIDTH, WIDTH)
        self.colour = nn.Linear(WIDTH, WIDTH)
        self.coordinates = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def loss(self, features: torch.Tensor, table: torch.Tensor, batch: Batch, sigma: float) -> torch.Tensor:
        """features [B, P, W], table [vocabulary, W] -> scalar."""
        flat, shape = features.reshape(-1, WIDTH), batch.patch_shape.reshape(-1)
        covered = shape >= 0
        loss = F.binary_cross_entropy_with_logits(self.covered(flat).squeeze(1), covered.float())
        inside = flat[covered]
        shapes = self.shape(inside) @ table[self.words.shapes].T
        loss = loss + SHAPE_WEIGHT * F.cross_entropy(shapes, shape[covered])
        colour = batch.patch_colour.reshape(-1)[covered]
        loss = loss + F.cross_entropy(self.colour(inside) @ table[self.words.colours].T, colour)
        boxes = batch.patch_box.reshape(-1, 4)[covered]
        locations = table[self.words.first_location : self.words.first_location + BINS]
        for k, layer in enumerate(self.coordinates):
            log_probs = (layer(inside) @ locations.T).log_softmax(-1)
            loss = loss + 0.25 * soft_coordinate_loss(log_probs, boxes[:, k], sigma).mean()
        return loss


class MatchHead(nn.Module):
    """Matches a query's last prompt token with the patches it asks for; thrown away after training.

    Both are read after MATCH_LAYERS decoder layers, so that the layers above can attend to the match.
    """

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.patch = nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.tensor(-2.0))

    def loss(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """hidden [B, P + T, W] -> scalar."""
        hidden = F.layer_norm(hidden, (WIDTH,))
        row, number = (batch.prompt_end >= 0).nonzero(as_tuple=True)
        queries = self.query(hidden[row, IMAGE_TOKENS + batch.prompt_end[row, number]])
        patches = self.patch(hidden[:, :IMAGE_TOKENS])[row]
        logits = (patches @ queries[:, :, None]).squeeze(2) / WIDTH**0.5 + self.bias
        target = batch.relevant[row, number].float()
        return F.binary_cross_entropy_with_logits(logits, target, pos_weight=torch.tensor(4.0))


def soft_coordinate_loss(log_probs: torch.Tensor, bins: torch.Tensor, sigma: float) -> torch.Tensor:
    """Cross-entropy against a normal distribution around the true bin: [n, BINS], [n] -> [n]."""
    distance = torch.arange(BINS) - bins[:, None]
    target = torch.exp(-0.5 * (distance / sigma) ** 2)
    return -(target / target.sum(1, keepdim=True) * log_probs).sum(1)


def packed_mask(segments: torch.Tensor) -> torch.Tensor:
    """[B, T] query numbers -> additive mask [B, 1, P + T, P + T].

    The image sees itself, a query sees the image and, causally, itself.
    """
    batch, text = segments.shape
    total = IMAGE_TOKENS + text
    allowed = torch.zeros(batch, total, total, dtype=torch.bool)
    allowed[:, :, :IMAGE_TOKENS] = True
    same = segments[:, :, None] == segments[:, None, :]
    allowed[:, IMAGE_TOKENS:, IMAGE_TOKENS:] = same & torch.ones(text, text, dtype=torch.bool).tril()
    return torch.where(allowed, 0.0, torch.finfo(torch.float32).min)[:, None]


def training_loss(
    model: PaliGemmaForConditionalGeneration,
    patch_head: PatchHead,
    match_head: MatchHead,
    batch: Batch,
    sigma: float,
    helper_weight: float,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The whole loss of one batch and its parts for the log."""
    text = model.model.language_model
    pixels = batch.pixels.float() / 127.5 - 1.0
    features = model.model.get_image_features(pixels).pooler_output
    embeds = torch.cat([features, text.embed_tokens(batch.tokens)], dim=1)
    image_positions = torch.arange(1, IMAGE_TOKENS + 1).expand(len(pixels), -1)
    output = text(
        inputs_embeds=embeds,
        attention_mask=packed_mask(batch.segments),
        position_ids=torch.cat([image_positions, batch.positions], dim=1),
        use_cache=False,
        output_hidden_states=True,
    )
    where = batch.targets >= 0
    targets = batch.targets[where]
    table = text.embed_tokens.weight
    hidden = output.last_hidden_state[:, IMAGE_TOKENS:]
    log_probs = (hidden[where] @ table.T).log_softmax(-1)
    first = patch_head.words.first_location
    is_location = (targets >= first) & (targets < first + BINS)
    losses = {
        "coordinate": soft_coordinate_loss(
            log_probs[is_location][:, first : first + BINS], targets[is_location] - first, sigma
        ).mean(),
        "choice": F.nll_loss(log_probs[~is_location], targets[~is_location]),
        "patch": patch_head.loss(features, table, batch, sigma),
        "match": match_head.loss(output.hidden_states[MATCH_LAYERS], batch),
    }
    helpers = losses["patch"] + 2.0 * losses["match"]
    total = losses["coordinate"] + 2.0 * losses["choice"] + helper_weight * helpers
    return total, {name: part.item() for name, part in losses.items()}
