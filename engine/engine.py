"""The engine's front door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from collections.abc import Sequence as Listing
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar, Unpack

from engine.adapters.bank import AdapterBank
from engine.adapters.slots import AdapterSlots
from engine.answer import Answer, collect
from engine.asking import Asked, ImageLike, make_request
from engine.attention import KvCache
from engine.device.base import Device
from engine.device.opening import open_device
from engine.errors import EngineError, closed
from engine.events import Event, Failed, Finished
from engine.executor import Executor
from engine.loop import EngineLoop
from engine.memory import allocating, count_pages, page_bytes
from engine.models.base import Model, ModelInfo
from engine.models.registry import load_model
from engine.options import Options
from engine.pages import PagePool
from engine.prepare import Preparation
from engine.request import Request
from engine.scheduler import Limits, Scheduler
from engine.sequence import Ask, Sequence
from engine.stats import Counts, Stats

PAGE_SIZE = 16
T = TypeVar("T")


class Handle:
    """A request that was submitted."""

    def __init__(self, loop: EngineLoop, ask: Ask) -> None:
        self._loop, self._ask = loop, ask

    def cancel(self) -> None:
        """Stop the request within one step; its last event is Failed, unless it was over already."""
        with suppress(EngineError):  # an engine that has ended has ended the request
            self._loop.post(lambda: self._loop.cancel(self._ask))


class Engine:
    """Answers requests on one model; every method may be called from any thread.

    A context manager: leaving it closes the engine.
    """

    def __init__(
        self, model: Model, device: Device, *, adapters: AdapterBank | None = None, **given: Any
    ) -> None:
        """See `load`; takes a model, its adapters and a device that are there already."""
        options = Options(**given)
        self.model_info: ModelInfo = replace(model.info, adapters=adapters.names) if adapters else model.info
        self._device, self._max_batch = device, options.max_batch
        _check(model, options)
        shared = model.info.prefix == "image"
        where = device.torch_device
        rows, kv = options.max_batch, model.kv
        pages = options.pages or count_pages(model, PAGE_SIZE, rows, options.kv_memory, where)
        with allocating(pages * page_bytes(kv, PAGE_SIZE), rows):
            cache = KvCache(kv.layers, pages, PAGE_SIZE, kv.kv_heads, kv.head_dim, kv.dtype, where)
            executor = Executor(model, device, cache, rows, options.placement, adapters)
            cursors = model.grammar.cursors(rows + 1)
            self._pool = PagePool(pages)
        limits = Limits(rows, PAGE_SIZE, shared, options.prefill_tokens, options.batch_share)
        slots = AdapterSlots(adapters.slots) if adapters else None
        scheduler = Scheduler(self._pool, limits, cursors, model.grammar.has_runs, slots)
        self._preparation = Preparation(model, self.model_info, options.prepare_threads, options.max_tokens)
        self._loop = EngineLoop(
            scheduler, executor, self._pool, cursors, options.mode, options.placement, options.trace
        )
        self._closed = False

    @classmethod
    def load(
        cls,
        model: str | Path = "tiny",
        *,
        device: str = "cpu",
        dtype: str = "auto",
        revision: str | None = None,
        adapters: Mapping[str, str | Path] | None = None,
        **options: Any,
    ) -> Engine:
        """Load a model and start the engine.

        model: a bundled name ("tiny"), a local folder, or a Hugging Face id.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        dtype: of the weights: "auto" (float32 on a CPU, bfloat16 on a GPU), or a name.
        revision: of a Hugging Face model: a branch, a tag or a commit.
        adapters: folders of LoRA adapters in the format of PEFT, by the names that requests give.
        options: the fields of `Options`.

        Raises ModelNotFound, and EngineError for a device that is not there or an adapter that does not fit.
        """
        machine = open_device(device)
        try:
            loaded = load_model(str(model), machine.torch_device, dtype, revision)
            folders = {name: Path(folder) for name, folder in (adapters or {}).items()}
            bank = AdapterBank(loaded, folders) if folders else None
            return cls(loaded, machine, adapters=bank, **options)
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
            raise closed()
        ask = Ask(request, on_event)

        def ready(result: list[Sequence] | EngineError) -> None:
            try:
                self._loop.post(lambda: self._loop.admit(ask, result))
            except EngineError as error:
                ask.fail(error)

        self._preparation.submit(ask, ready)
        return Handle(self._loop, ask)

    def ask(self, request: Request) -> Answer:
        """Answer a request; blocks.  Raises EngineError."""
        arriving: SimpleQueue[Event] = SimpleQueue()
        self.submit(request, arriving.put)
        events = [arriving.get()]
        while not isinstance(events[-1], Finished | Failed):
            events.append(arriving.get())
        return collect(self.model_info, request, events)

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """The events of a request as they come; leaving the iterator early cancels it."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def put(event: Event) -> None:
            with suppress(RuntimeError):  # the event loop is closed, and whoever listened is gone
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

    def detect(self, image: ImageLike, phrase: str | Listing[str], **asked: Unpack[Asked]) -> Answer:
        """Boxes of what the phrases name.

        image: PIL image, or uint8 [H, W, 3] RGB, upright.
        Raises EngineError.
        """
        return self.ask(make_request("detect", image, phrase, asked))

    def point(self, image: ImageLike, phrase: str | Listing[str], **asked: Unpack[Asked]) -> Answer:
        """Points on what the phrases name; arguments as in `detect`."""
        return self.ask(make_request("point", image, phrase, asked))

    def stats(self) -> Stats:
        """Counts between two steps.  Raises EngineError after `close`."""
        return self._between_steps(self._stats)

    def stats_soon(self) -> Future[Stats]:
        """`stats` without waiting: open for as long as the engine thread hangs.

        Raises EngineError after `close`.
        """
        return self._soon(self._stats)

    def pages_for(self, max_objects: int) -> int:
        """About how many pages one phrase takes at most, on an image of its own."""
        return -(-self._preparation.most_tokens(max_objects) // PAGE_SIZE)

    def counts(self) -> Counts:
        """What prefilling cost so far."""
        return Counts(*self._loop.executor.counts())

    def check_integrity(self) -> None:
        """Raises AssertionError unless every page is accounted for, and none is held while idle."""
        scheduler = self._loop.scheduler

        def check() -> None:
            idle = not scheduler.running and not scheduler.waiting
            self._pool.check_integrity(idle)
            assert not idle or not scheduler.adapters.held, "an adapter's slot is held while idle"

        self._between_steps(check)

    def clear_cache(self) -> None:
        """Drop every image prefix that no sequence uses, all vision features and preprocessed images."""

        def clear() -> None:
            self._pool.clear_cache()
            self._loop.executor.clear_cache()

        self._preparation.pixels.clear()
        self._between_steps(clear)

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

    def _between_steps(self, work: Callable[[], T]) -> T:
        """What the engine thread returns or raises for it.  Raises EngineError after `close`."""
        return self._soon(work).result()

    def _soon(self, work: Callable[[], T]) -> Future[T]:
        done: Future[T] = Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        self._loop.post(run)
        return done

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
            steps=self._loop.pipeline.launched,
            prefill_tokens=self._loop.executor.counts()[1],
            decode_tokens=self._loop.decoded,
            idle_s=self._loop.idle_s,
            device_s=self._loop.executor.device_s,
        )


def _check(model: Model, options: Options) -> None:
    """Raises EngineError for a model that cannot run with these options."""
    if options.placement == "device" and model.grammar.has_runs:
        raise EngineError(
            "invalid-request",
            f"{model.info.name} writes text that is not sampled: placement must be host",
            "placement",
        )
