"""PaliGemma and PaliGemma 2 through transformers: SigLIP tower, projector, Gemma or Gemma 2 decoder.

Serves the public checkpoints (dialect `paligemma`, prefix = image and prompt) and our default one, whose
config names its own dialect and an image-only prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from engine.attention import Paged
from engine.device.cuda import upload
from engine.errors import ModelNotFound
from engine.models.base import AdaptedPart, Encoded, KvShape, ModelInfo, Pixels
from engine.models.checkpoint import Checkpoint
from engine.models.family import Family
from engine.models.pretrained import load_pretrained
from engine.models.text import TextEncoder
from grammars.dialects.base import Dialect
from grammars.dialects.paligemma import PaliGemmaDialect
from grammars.dialects.pointbox import PointboxDialect
from grammars.grammar import Grammar
from grammars.symbols import BINS, Tokens
from grammars.types import Task

POSITION_OFFSET = 1  # PaliGemma counts positions from 1
DECODERS = ("gemma", "gemma2")


class PaliGemma:
    """See `engine.models.base.Model`."""

    both_ways = True

    def __init__(self, checkpoint: Checkpoint) -> None:
        from transformers import AutoImageProcessor, PaliGemmaForConditionalGeneration

        config, folder = checkpoint.config, checkpoint.folder
        decoder = config["text_config"].get("model_type", DECODERS[0])
        if decoder not in DECODERS:
            raise ModelNotFound(f"{folder} has a text decoder {decoder!r}: use one of {', '.join(DECODERS)}")
        self._device = checkpoint.device
        self._text = TextEncoder(folder)
        self._model = load_pretrained(PaliGemmaForConditionalGeneration, checkpoint)
        self._processor: Any = AutoImageProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
        own = config.get("pointbox_dialect") == PointboxDialect.name
        dialect: Dialect = PointboxDialect() if own else PaliGemmaDialect()
        self.grammar = Grammar(dialect, self._tokens(own))
        text = self._model.config.text_config
        prefix = cast(Literal["image", "prompt"], config.get("pointbox_prefix", "prompt"))
        notes: dict[Task, str] = {} if own else {"point": "points are the centres of detected boxes"}
        self.info = ModelInfo(checkpoint.name, FAMILY.name, checkpoint.revision, FAMILY.tasks, prefix, notes)
        self.kv = KvShape(text.num_hidden_layers, text.num_key_value_heads, text.head_dim, self._model.dtype)
        vision = self._model.config.vision_config
        self.image_tokens = (vision.image_size // vision.patch_size) ** 2
        self.max_context = text.max_position_embeddings
        alphabet = torch.from_numpy(self.grammar.alphabet).to(self._device)
        self._head = self._model.lm_head.weight.detach()[alphabet].contiguous()
        self._cap: float | None = getattr(text, "final_logit_softcapping", None)
        self.adapted_parts = (
            AdaptedPart(
                self._model.model.language_model.layers,
                ("model.language_model.layers", "language_model.model.layers"),
                "text",
            ),
            AdaptedPart(
                self._model.model.vision_tower,
                (
                    "model.vision_tower",
                    "model.vision_tower.vision_model",
                    "vision_tower",
                    "vision_tower.vision_model",
                ),
                "image",
            ),
            AdaptedPart(
                self._model.model.multi_modal_projector,
                ("model.multi_modal_projector", "multi_modal_projector"),
                "image",
            ),
        )
        self._bos = self._model.config.text_config.bos_token_id

    def preprocess(self, image: npt.NDArray[np.uint8]) -> Pixels:
        """[H, W, 3] -> float [3, S, S]."""
        pixels = self._processor(images=image, return_tensors="pt", input_data_format="channels_last")
        return Pixels(pixels["pixel_values"][0], self.image_tokens)

    def prompt(self, task: Task, phrase: str) -> list[int]:
        return [self._bos, *self._text.encode(self.grammar.dialect.prompt(task, phrase))]

    def label(self, phrase: str) -> list[int]:
        text = self.grammar.dialect.label(phrase)
        return [] if text is None else self._text.encode(text)

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        stacked = upload(torch.stack([p.data for p in pixels]), self._device)
        features = self._model.model.get_image_features(stacked.to(self._model.dtype))
        return [Encoded(embeds) for embeds in features.pooler_output]

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self._model.get_input_embeddings()(tokens))

    def forward(
        self, embeds: torch.Tensor, paged: Paged, images: Sequence[Encoded] | None = None
    ) -> torch.Tensor:
        output = self._model.model.language_model(
            inputs_embeds=embeds,
            position_ids=paged.index + POSITION_OFFSET,
            use_cache=False,
            paged=paged,
        )
        return cast(torch.Tensor, output.last_hidden_state)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = F.linear(hidden, self._head)
        return logits if self._cap is None else self._cap * torch.tanh(logits / self._cap)

    def _tokens(self, own: bool) -> Tokens:
        added = self._text.added
        try:
            coordinates = [added[f"<loc{i:04d}>"] for i in range(BINS)]
        except KeyError as missing:
            raise ModelNotFound(f"the tokenizer has no location token {missing}") from None
        eos = self._model.config.text_config.eos_token_id
        end = list(eos) if isinstance(eos, list) else [eos]
        if own:
            return Tokens(coordinates, end, start=added["<obj>"])
        return Tokens(coordinates, end, pieces=self._text.pieces())


FAMILY = Family(
    name="paligemma",
    model_types=("paligemma",),
    tasks=("detect", "point"),
    prefix="prompt",
    examples=("google/paligemma-3b-mix-448", "google/paligemma2-3b-mix-448"),
    load=PaliGemma,
)
