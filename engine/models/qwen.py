"""Qwen2.5-VL and Qwen3-VL through transformers: their vision towers, their decoders on our pages.

The prefix of an image is everything up to the end of the image in the chat, so that it serves every phrase.
Positions have three axes: an image spans as many as the longer side of its grid has tokens, so that what
comes after it is nearer to its beginning than its place is (`Pixels.shift`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

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
from grammars.dialects.qwen import QwenDialect, Writing
from grammars.grammar import Grammar
from grammars.spelled import SpelledGrammar
from grammars.types import TASKS, Task

TEXT_TOKENS = 4096
"""Room for a prompt and its answer beside the largest image."""
TYPICAL_IMAGE = 1280
"""Tokens of an image of a million pixels."""
LONGEST = 200
"""How many times its shorter side an image's longer side may be."""


SYSTEM = "You are a helpful assistant."
"""The first message of a chat with Qwen2.5-VL; Qwen3-VL has none."""


class Qwen:
    """See `engine.models.base.Model`."""

    both_ways = False

    def __init__(self, checkpoint: Checkpoint) -> None:
        from transformers import (
            AutoImageProcessor,
            Qwen2_5_VLForConditionalGeneration,
            Qwen3VLForConditionalGeneration,
        )

        folder, self._device = checkpoint.folder, checkpoint.device
        self.thousandths = checkpoint.config["model_type"] == "qwen3_vl"
        self._text = TextEncoder(folder)
        try:
            self.writing = {task: Writing(task, self._text.encode) for task in TASKS}
        except ValueError as error:
            raise ModelNotFound(f"{folder}: {error}") from error
        self.grammar: Grammar = SpelledGrammar(QwenDialect(), {t: w.marks for t, w in self.writing.items()})
        self._before, self._after, self._answer = self._chat()
        kind: Any = (
            Qwen3VLForConditionalGeneration if self.thousandths else Qwen2_5_VLForConditionalGeneration
        )
        self._model = load_pretrained(kind, checkpoint)
        self._processor: Any = AutoImageProcessor.from_pretrained(folder)  # type: ignore[no-untyped-call]
        text, vision = self._model.config.text_config, self._model.config.vision_config
        self.patch, self.merge = vision.patch_size, vision.spatial_merge_size
        self.info = ModelInfo(
            checkpoint.name, FAMILY.name, checkpoint.revision, FAMILY.tasks, FAMILY.prefix, {}
        )
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        self.kv = KvShape(text.num_hidden_layers, text.num_key_value_heads, head_dim, self._model.dtype)
        largest = self._processor.size["longest_edge"] // (self.patch * self.merge) ** 2
        self.image_tokens = min(largest, TYPICAL_IMAGE) + len(self._before) + len(self._after)
        self.max_context = min(text.max_position_embeddings, largest + TEXT_TOKENS)
        alphabet = torch.from_numpy(self.grammar.alphabet).to(self._device)
        self._head = self._model.lm_head.weight.detach()[alphabet].contiguous()
        parts = self._model.model
        self.adapted_parts = (
            AdaptedPart(parts.language_model.layers, ("model.language_model.layers", "model.layers"), "text"),
            AdaptedPart(parts.visual, ("model.visual", "visual"), "image"),
        )

    def preprocess(self, image: npt.NDArray[np.uint8]) -> Pixels:
        """[H, W, 3] -> float [patches, channels * frames * patch * patch]."""
        inputs = self._processor(
            images=no_longer(image), return_tensors="pt", input_data_format="channels_last"
        )
        _, rows, columns = (inputs["image_grid_thw"][0] // self.merge).tolist()
        side = self.patch * self.merge
        return Pixels(
            inputs["pixel_values"],
            tokens=len(self._before) + rows * columns + len(self._after),
            shift=max(rows, columns) - rows * columns,
            frame=(1000, 1000) if self.thousandths else (columns * side, rows * side),
            grid=(rows, columns),
        )

    def prompt(self, task: Task, phrase: str) -> list[int]:
        asked = self._text.encode(self.grammar.dialect.prompt(task, phrase))
        return [*asked, *self._answer, *self.writing[task].opening]

    def label(self, phrase: str) -> list[int]:
        text = self.grammar.dialect.label(phrase)
        assert text is not None
        return self.writing["detect"].label(self._text.encode(text))

    def encode_images(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        patches = upload(torch.cat([p.data for p in pixels]), self._device)
        sizes = [[1, rows * self.merge, columns * self.merge] for rows, columns in (p.grid for p in pixels)]
        grid = upload(torch.tensor(sizes), self._device)
        output = self._model.model.get_image_features(patches, grid)
        before, after = (self.embed(self._known(tokens)) for tokens in (self._before, self._after))
        encoded = []
        for i, (image, features) in enumerate(zip(pixels, output.pooler_output, strict=True)):
            embeds = torch.cat([before, features.to(before.dtype), after])
            encoded.append(Encoded(embeds, self._positions(image), self._deep(output, i)))
        return encoded

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self._model.get_input_embeddings()(tokens))

    def forward(
        self, embeds: torch.Tensor, paged: Paged, images: Sequence[Encoded] | None = None
    ) -> torch.Tensor:
        deep: dict[str, Any] = {}
        if images is None:
            assert paged.shift is not None
            positions = paged.index + paged.shift[:, None]
        else:
            positions = torch.stack([cast(torch.Tensor, image.positions) for image in images], dim=1)
            layers = [image.deep for image in images if image.deep is not None]
            if layers:
                everywhere = torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
                added = list(torch.cat(layers, dim=1))
                deep = {"visual_pos_masks": everywhere, "deepstack_visual_embeds": added}
        output = self._model.model.language_model(
            inputs_embeds=embeds, position_ids=positions, use_cache=False, paged=paged, **deep
        )
        return cast(torch.Tensor, output.last_hidden_state)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self._head)

    def _chat(self) -> tuple[list[int], list[int], list[int]]:
        """What stands before an image, after it, and after a question about it."""
        try:
            start, end, image_start, image_end = (
                self._text.added[f"<|{name}|>"]
                for name in ("im_start", "im_end", "vision_start", "vision_end")
            )
        except KeyError as missing:
            raise ModelNotFound(f"the tokenizer has no token {missing}") from None
        encode = self._text.encode
        message = [] if self.thousandths else [start, *encode(f"system\n{SYSTEM}"), end, *encode("\n")]
        before = [*message, start, *encode("user\n"), image_start]
        return before, [image_end], [end, *encode("\n"), start, *encode("assistant\n")]

    def _positions(self, image: Pixels) -> torch.Tensor:
        """int64 [3, P]: time, row and column in the image, the same on all axes around it."""
        rows, columns = image.grid
        before = len(self._before)
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        inside = torch.stack(
            [torch.zeros(rows * columns, dtype=torch.int64), row.flatten(), column.flatten()]
        )
        after = torch.arange(len(self._after)) + max(rows, columns)
        positions = torch.cat([torch.arange(-before, 0).expand(3, -1), inside, after.expand(3, -1)], dim=1)
        return upload(positions + before, self._device)

    def _deep(self, output: Any, image: int) -> torch.Tensor | None:
        """What Qwen3-VL adds to the first layers of an image's tokens, nothing around them."""
        layers = getattr(output, "deepstack_features", None)
        if not layers:
            return None
        around = (0, 0, len(self._before), len(self._after))
        return F.pad(torch.stack([layer[image] for layer in layers]), around)

    def _known(self, tokens: list[int]) -> torch.Tensor:
        return upload(torch.tensor(tokens), self._device)


def no_longer(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """An image whose sides are within what the processor takes: a line of pixels is made broader."""
    height, width = image.shape[:2]
    rows, columns = max(height, -(-width // LONGEST)), max(width, -(-height // LONGEST))
    if (rows, columns) == (height, width):
        return image
    broad: npt.NDArray[np.uint8] = image[np.arange(rows) * height // rows]
    return broad[:, np.arange(columns) * width // columns]


FAMILY = Family(
    "qwen-vl",
    model_types=("qwen2_5_vl", "qwen3_vl"),
    tasks=TASKS,
    prefix="image",
    examples=("Qwen/Qwen2.5-VL-3B-Instruct", "Qwen/Qwen3-VL-4B-Instruct"),
    load=Qwen,
)
