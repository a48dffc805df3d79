"""Work that must not stall the engine thread: hashing, resizing, tokenising."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError, closed
from engine.models.base import Model, ModelInfo, Referring
from engine.models.registry import families
from engine.pixels import PixelCache
from engine.request import Request
from engine.sequence import Ask, Sequence
from grammars.types import Task

PIXELS_KEPT = 64 << 20
"""Bytes of preprocessed images: those whose KV is still cached, for small models."""
PROMPT_TOKENS = 16
"""Of a usual phrase, for estimates."""
NO_PIXELS = np.zeros((0, 0, 3), np.uint8)


class Preparation:
    """Turns requests into sequences on threads of its own and hands them on."""

    def __init__(self, model: Model, info: ModelInfo, threads: int, max_tokens: int | None) -> None:
        """info: of the model, with the adapters that it has been given."""
        self._model, self._info, self._max_tokens = model, info, max_tokens
        self.pixels = PixelCache(model.preprocess, PIXELS_KEPT)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pointbox-prepare")

    def submit(self, ask: Ask, ready: Callable[[list[Sequence] | EngineError], None]) -> None:
        """Calls `ready` from another thread, once.  Raises EngineError after `close`."""
        try:
            future = self._pool.submit(self._run, ask, ready)
        except RuntimeError:
            raise closed() from None
        future.add_done_callback(lambda done: ready(closed()) if done.cancelled() else None)

    def most_tokens(self, max_objects: int) -> int:
        """Image, prompt and answer of one phrase, for the task whose answers are the longest."""
        prompt, image = [0] * PROMPT_TOKENS, self._model.image_tokens
        limits = [self._token_limit(task, max_objects, image, prompt, []) for task in self._model.info.tasks]
        return image + len(prompt) + max(limits)

    def close(self) -> None:
        """Finish what has begun; what has not is told that the engine was closed."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, ask: Ask, ready: Callable[[list[Sequence] | EngineError], None]) -> None:
        try:
            result: list[Sequence] | EngineError = self._sequences(ask)
        except EngineError as error:
            result = error
        except Exception as error:
            result = EngineError("internal", f"preparing the request failed: {error}")
        ask.prepared = time.monotonic()
        ask.request = replace(ask.request, image=NO_PIXELS)  # or they would stay as long as the request
        ready(result)

    def _sequences(self, ask: Ask) -> list[Sequence]:
        request, model = ask.request, self._model
        check_ability(self._info, request)
        key = image_key(request.image)
        pixels = self.pixels.of(key, request.image)
        ask.open_sequences = len(request.phrases)
        seed = secrets.randbits(32) if request.seed is None else request.seed
        sequences = []
        for index, phrase in enumerate(request.phrases):
            prompt, label = self._prompt(request, phrase), model.label(phrase)
            sequences.append(
                Sequence(
                    ask=ask,
                    phrase_index=index,
                    prompt=prompt,
                    label=label,
                    image_key=key,
                    pixels=pixels,
                    image_tokens=pixels.tokens,
                    shift=pixels.shift,
                    frame=pixels.frame,
                    max_tokens=self._token_limit(
                        request.task, request.max_objects, pixels.tokens, prompt, label
                    ),
                    seed=(seed + index) & 0xFFFFFFFF,
                )
            )
        return sequences

    def _prompt(self, request: Request, phrase: str) -> list[int]:
        model, places = self._model, request.spatial_refs
        if not places:
            return model.prompt(request.task, phrase)
        if isinstance(model, Referring):
            return model.prompt_about(request.task, phrase, places)
        raise EngineError(
            "invalid-request",
            f"model {model.info.name} takes no spatial_refs: leave them out, or use a Moondream model",
            "spatial_refs",
        )

    def _token_limit(
        self, task: Task, max_objects: int, image_tokens: int, prompt: list[int], label: list[int]
    ) -> int:
        """Enough for every object asked for, and as many again that repeat or are filtered."""
        room = self._model.max_context - image_tokens - len(prompt)
        per_object = self._model.grammar.object_tokens(task, len(label))
        if room < per_object:
            raise EngineError(
                "invalid-phrase",
                f"the phrase is {len(prompt)} tokens long: too long for this model",
                "object",
            )
        wanted = per_object * max(50, 2 * max_objects)
        return min(wanted, room, self._max_tokens or room)


def check_ability(info: ModelInfo, request: Request) -> None:
    """Raises EngineError for a task or an adapter that the model lacks, naming what there is."""
    if request.task not in info.tasks:
        able = ", ".join(family.name for family in families() if request.task in family.tasks)
        raise EngineError(
            "unsupported-task",
            f"model {info.name} cannot {request.task}; models of these families can: {able}",
            "model",
        )
    if request.adapter is not None and request.adapter not in info.adapters:
        has = f"it has {', '.join(info.adapters)}" if info.adapters else "it has none"
        raise EngineError(
            "unknown-model", f"model {info.name} has no adapter {request.adapter!r}; {has}", "adapter"
        )


def image_key(image: npt.NDArray[np.uint8]) -> bytes:
    """SHA-256 of width, height and all RGB bytes."""
    height, width = image.shape[:2]
    digest = hashlib.sha256(width.to_bytes(4, "little") + height.to_bytes(4, "little"))
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
