"""The engine's front door."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.answer import Answer, collect
from engine.attention import KvCache
from engine.device.base import Device
from engine.device.opening import open_device
from engine.errors import EngineError
from engine.events import Event, Failed, Finished
from engine.executor import Executor, Placement
from engine.loop import EngineLoop, Mode
from engine.memory import count_pages
from engine.models.base import Model, ModelInfo
from engine.models.registry import load_model
from engine.pages import PagePool
from engine.prepare import Preparation
from engine.request import Request
from engine.scheduler import Limits, Scheduler
from engine.sequence import Ask, Sequence
from engine.trace import Trace
from grammars.cursors import Cursors
from grammars.types import Region, Task

PAGE_SIZE = 16
ImageLike = Image.Image | npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Stats:
    """A moment's counts; pages are blocks of KV."""

    rows_active: int
    rows_max: int
    waiting: int
    pages_free: int
    pages_cached: int
    pages_held: int
    pages_total: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Since the start: images through the vision tower, image and prompt tokens prefilled."""

    vision_images: int
    prefill_tokens: int


@dataclass(frozen=True, slots=True)
class Options:
    """How an engine runs.

    mode: "pipelined", or "blocking", the reference: the same functions in another order.
    placement: where sampling finds grammar states; "device" never waits for a commit, but cannot write
        labels.
    max_batch: rows, that is sequences that decode together.
    pages: blocks of 16 tokens of KV.
    kv_memory: bytes of KV where `pages` is not given; by default enough for 256 cached images and, at full
        context, half of `max_batch` rows on a CPU, all of them on a GPU that has the memory.
    prefill_tokens: image and prompt tokens that one prefill step computes at most.
    batch_share: part of the rows that batch sequences hold at most while interactive ones are there.
    max_tokens: tokens per phrase at most, by default what `max_objects` needs.
    trace: records what ran when.
    """

    mode: Mode = "pipelined"
    placement: Placement = "host"
    max_batch: int = 32
    pages: int | None = None
    kv_memory: int | None = None
    prefill_tokens: int = 1024
    batch_share: float = 0.5
    prepare_threads: int = 2
    max_tokens: int | None = None
    trace: Trace | None = None


class Handle:
    """A request that was submitted."""

    def __init__(self, loop: EngineLoop, ask: Ask) -> None:
        self._loop, self._ask = loop, ask

    def cancel(self) -> None:
        """Stop the request within one step; its last event is Failed, unless it was over already."""
        self._loop.post(lambda: self._loop.cancel(self._ask))


class Engine:
    """Answers requests on one model; every method may be called from any thread.

    A context manager: leaving it closes the engine.
    """

    def __init__(self, model: Model, device: Device, **given: Any) -> None:
        """See `load`; takes a model and a device that are there already."""
        options = Options(**given)
        self.model_info: ModelInfo = model.info
        self._device, self._max_batch = device, options.max_batch
        _check(model, options)
        shared = model.info.prefix == "image"
        where = device.torch_device
        pages = options.pages or count_pages(model, PAGE_SIZE, options.max_batch, options.kv_memory, where)
        self._pool = PagePool(pages)
        limits = Limits(
            options.max_batch,
            PAGE_SIZE,
            model.image_tokens,
            shared,
            options.prefill_tokens,
            options.batch_share,
        )
        cursors = Cursors(model.grammar, options.max_batch + 1)
        scheduler = Scheduler(self._pool, limits, cursors, model.grammar.has_labels)
        kv = model.kv
        cache = KvCache(kv.layers, pages, PAGE_SIZE, kv.kv_heads, kv.head_dim, kv.dtype, where)
        executor = Executor(model, device, cache, options.max_batch, options.placement)
        self._preparation = Preparation(model, options.prepare_threads, options.max_tokens)
        self._loop = EngineLoop(
            scheduler, executor, self._pool, cursors, options.mode, options.placement, options.trace
        )
        self._closed = False

    @classmethod
    def load(cls, model: str = "tiny", *, device: str = "cpu", **options: Any) -> Engine:
        """Load a model and start the engine.

        model: a bundled name ("tiny"), a local folder, or a Hugging Face id.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        options: the fields of `Options`.

        Raises ModelNotFound, and EngineError for a device that is not there.
        """
        machine = open_device(device)
        try:
            return cls(load_model(str(model), machine.torch_device), machine, **options)
        except BaseException:
            machine.close()
            raise

    def submit(self, request: Request, on_event: Callable[[Event], None]) -> Handle:
        """Start a request.

        `on_event` is called on the engine thread for every event and must not block.
        Raises EngineError for a request that no model could answer.
        """
        request.check()
        if self._closed or self._loop.broken is not None:
            raise EngineError("closed", "the engine was closed")
        ask = Ask(request, on_event)

        def ready(result: list[Sequence] | EngineError) -> None:
            self._loop.post(lambda: self._loop.admit(ask, result))

        self._preparation.submit(ask, ready)
        return Handle(self._loop, ask)

    def ask(self, request: Request) -> Answer:
        """Answer a request; blocks.  Raises EngineError."""
        arriving: SimpleQueue[Event] = SimpleQueue()
        self.submit(request, arriving.put)
        events = [arriving.get()]
        while not isinstance(events[-1], Finished | Failed):
            events.append(arriving.get())
        return collect(self.model_info.name, request, events)

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """The events of a request as they come; leaving the iterator early cancels it."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def put(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        handle = self.submit(request, put)
        over = False
        try:
            while not over:
                event = await events.get()
                over = isinstance(event, Finished | Failed)
                yield event
        finally:
            if not over:
                handle.cancel()

    def detect(
        self,
        image: ImageLike,
        phrase: str | Listing[str],
        *,
        max_objects: int = 50,
        region: Region | None = None,
        min_score: float = 0.0,
        dedupe: bool = True,
        timeout_s: float | None = None,
    ) -> Answer:
        """Boxes of what the phrases name.

        image: PIL image, or uint8 [H, W, 3] RGB, upright.  See `engine.request.Request` for the rest.
        Raises EngineError.
        """
        return self.ask(
            make_request("detect", image, phrase, max_objects, region, min_score, dedupe, timeout_s)
        )

    def point(
        self,
        image: ImageLike,
        phrase: str | Listing[str],
        *,
        max_objects: int = 50,
        region: Region | None = None,
        min_score: float = 0.0,
        dedupe: bool = True,
        timeout_s: float | None = None,
    ) -> Answer:
        """Points on what the phrases name; arguments as in `detect`."""
        return self.ask(
            make_request("point", image, phrase, max_objects, region, min_score, dedupe, timeout_s)
        )

    def stats(self) -> Stats:
        """Counts between two steps."""
        answer: SimpleQueue[Stats] = SimpleQueue()
        self._loop.post(lambda: answer.put(self._stats()))
        return answer.get()

    def counts(self) -> Counts:
        """What prefilling cost so far."""
        return Counts(*self._loop.executor.counts())

    def check_integrity(self) -> None:
        """Raises AssertionError unless every page is accounted for, and none is held while idle."""
        answer: SimpleQueue[AssertionError | None] = SimpleQueue()

        def check() -> None:
            try:
                scheduler = self._loop.scheduler
                self._pool.check_integrity(idle=not scheduler.running and not scheduler.waiting)
            except AssertionError as error:
                answer.put(error)
            else:
                answer.put(None)

        self._loop.post(check)
        if (error := answer.get()) is not None:
            raise error

    def clear_cache(self) -> None:
        """Drop every image prefix that no sequence uses, and all vision features."""
        done = threading.Event()

        def clear() -> None:
            self._pool.clear_cache()
            self._loop.executor.clear_cache()
            done.set()

        self._loop.post(clear)
        done.wait()

    def close(self) -> None:
        """Fail what is left, end every thread.  May be called twice."""
        if not self._closed:
            self._closed = True
            self._preparation.close()
            self._loop.close()
            self._device.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stats(self) -> Stats:
        pool = self._pool
        return Stats(
            rows_active=self._loop.scheduler.running,
            rows_max=self._max_batch,
            waiting=self._loop.scheduler.waiting,
            pages_free=pool.free,
            pages_cached=pool.cached,
            pages_held=pool.held,
            pages_total=pool.total,
        )


def make_request(
    task: Task,
    image: ImageLike,
    phrase: str | Listing[str],
    max_objects: int,
    region: Region | None,
    min_score: float,
    dedupe: bool,
    timeout_s: float | None,
) -> Request:
    """A request from what people have at hand."""
    pixels = np.asarray(image.convert("RGB")) if isinstance(image, Image.Image) else image
    phrases = (phrase,) if isinstance(phrase, str) else tuple(phrase)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    return Request(task, pixels, phrases, max_objects, region, min_score, dedupe, deadline)


def _check(model: Model, options: Options) -> None:
    """Raises EngineError for a model that cannot run with these options."""
    if model.info.prefix == "image" and model.image_tokens % PAGE_SIZE:
        raise EngineError(
            "unknown-model", f"an image prefix must be a multiple of {PAGE_SIZE} tokens to be shared"
        )
    if options.placement == "device" and model.grammar.has_labels:
        raise EngineError(
            "invalid-request", f"{model.info.name} writes labels: placement must be host", "placement"
        )
