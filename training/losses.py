"""What the default model is trained on: answers with soft coordinates, and a dense auxiliary head."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PaliGemmaForConditionalGeneration

from training.batches import BINS, Batch
from training.checkpoint import IMAGE_TOKENS, WIDTH
from training.scenes import COLOURS, SHAPES


class PatchHead(nn.Module):
    """Reads every patch's object from the projector's output; thrown away after training.

    Its four coordinates are written through the tied location embeddings, so the table learns what a
    place on the image is long before the decoder can ask for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shape = nn.Linear(WIDTH, len(SHAPES) + 1)
        self.colour = nn.Linear(WIDTH, len(COLOURS))
        self.coordinates = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def loss(
        self, features: torch.Tensor, locations: torch.Tensor, batch: Batch, sigma: float
    ) -> torch.Tensor:
        """features [B, P, W], locations [BINS, W] -> scalar."""
        flat = features.reshape(-1, WIDTH)
        shape = batch.patch_shape.reshape(-1)
        loss = F.cross_entropy(self.shape(flat), shape)
        covered = (shape < len(SHAPES)).nonzero().squeeze(1)
        inside = flat[covered]
        loss = loss + F.cross_entropy(self.colour(inside), batch.patch_colour.reshape(-1)[covered])
        boxes = batch.patch_box.reshape(-1, 4)[covered]
        for k, layer in enumerate(self.coordinates):
            logits = layer(inside) @ locations.T
            loss = loss + 0.25 * soft_coordinate_loss(logits.log_softmax(-1), boxes[:, k], sigma).mean()
        return loss


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
    head: PatchHead,
    batch: Batch,
    first_location: int,
    sigma: float,
    patch_weight: float,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The whole loss of one batch and its parts for the log."""
    text = model.model.language_model
    pixels = batch.pixels.float() / 127.5 - 1.0
    features = model.model.get_image_features(pixels).pooler_output
    embeds = torch.cat([features, text.embed_tokens(batch.tokens)], dim=1)
    image_positions = torch.arange(1, IMAGE_TOKENS + 1).expand(len(pixels), -1)
    hidden = text(
        inputs_embeds=embeds,
        attention_mask=packed_mask(batch.segments),
        position_ids=torch.cat([image_positions, batch.positions], dim=1),
        use_cache=False,
    ).last_hidden_state[:, IMAGE_TOKENS:]
    where = batch.targets >= 0
    targets = batch.targets[where]
    table = text.embed_tokens.weight
    log_probs = (hidden[where] @ table.T).log_softmax(-1)
    is_location = (targets >= first_location) & (targets < first_location + BINS)
    choice = F.nll_loss(log_probs[~is_location], targets[~is_location])
    locations = slice(first_location, first_location + BINS)
    coordinate = soft_coordinate_loss(
        log_probs[is_location][:, locations], targets[is_location] - first_location, sigma
    ).mean()
    patch = head.loss(features, table[locations], batch, sigma)
    loss = coordinate + choice + patch_weight * patch
    parts = {"coordinate": coordinate.item(), "choice": choice.item(), "patch": patch.item()}
    return loss, parts
