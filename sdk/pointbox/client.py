"""The client for threads and plain code. `async_client.py` is the same for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

from pointbox.arguments import Phrases, check_phrases
from pointbox.calls import DETECT, POINT, F, Model, Options, R, Task, ask, fields_of, forget, models, upload
from pointbox.config import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S, Config
from pointbox.errors import NotFound
from pointbox.events import Answering
from pointbox.job_clients import Jobs
from pointbox.mapping import Counter, Outcome, Progress, check_map, map_threads
from pointbox.pictures import ImageHandle, ImageSource, prepare, size_of
from pointbox.results import Detection, DetectResult, Point, PointResult
from pointbox.sending import Sender
from pointbox.streams import Stream


class Client:
    """Asks a Pointbox service. One client serves all threads, and goes on working in forked processes.

        with Client() as client:
            for box in client.detect("street.jpg", ["car", "bicycle"]):
                print(box.label, box.score, box.pixels)

    Args:
        url: where the service is; POINTBOX_URL, else http://127.0.0.1:8000.
        api_key: sent as a bearer token; POINTBOX_API_KEY, else none.
        model: for calls that name none; the service's own by default.
        timeout: seconds that one call may take, its retries and pauses included.
        retries: how often a call is sent again when the service is busy or the connection breaks.

    Raises:
        TypeError, ValueError: one of these cannot be used.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        model: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
        retries: int = DEFAULT_RETRIES,
    ) -> None:
        self._config = Config.of(url, api_key, model, timeout, retries)
        self._sender = Sender(self._config)
        self.images = Images(self._config, self._sender)
        """Leave images with the service and ask about them often."""
        self.jobs = Jobs(self._config, self._sender)
        """The same question about every image of a bucket of the service."""

    @overload
    def detect(
        self,
        image: ImageSource,
        phrases: Phrases,
        *,
        stream: Literal[False] = False,
        **options: Unpack[Options],
    ) -> DetectResult: ...
    @overload
    def detect(
        self, image: ImageSource, phrases: Phrases, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream[Detection, DetectResult]: ...
    def detect(
        self, image: ImageSource, phrases: Phrases, *, stream: bool = False, **options: Unpack[Options]
    ) -> DetectResult | Stream[Detection, DetectResult]:
        """Boxes around everything that the phrases name.

        Args:
            image: a path, the bytes of an image file, a PIL image, a uint8 RGB array, a URL or a handle.
            phrases: one, or up to 32 that are answered together.
            stream: iterate over the boxes while the service finds them.
            options: see `Options`.

        Raises:
            PointboxError: there is no answer; its subclasses say why.
            OSError, TypeError, ValueError: the image cannot be read, or an option is not known.
        """
        return self._ask(DETECT, image, phrases, stream, options)

    @overload
    def point(
        self,
        image: ImageSource,
        phrases: Phrases,
        *,
        stream: Literal[False] = False,
        **options: Unpack[Options],
    ) -> PointResult: ...
    @overload
    def point(
        self, image: ImageSource, phrases: Phrases, *, stream: Literal[True], **options: Unpack[Options]
    ) -> Stream[Point, PointResult]: ...
    def point(
        self, image: ImageSource, phrases: Phrases, *, stream: bool = False, **options: Unpack[Options]
    ) -> PointResult | Stream[Point, PointResult]:
        """A point on everything that the phrases name; everything else is as with `detect`."""
        return self._ask(POINT, image, phrases, stream, options)

    @overload
    def map(
        self,
        images: Iterable[ImageSource],
        phrases: Phrases,
        *,
        task: Literal["detect"] = "detect",
        concurrency: int = 8,
        progress: Callable[[Progress], object] | None = None,
        **options: Unpack[Options],
    ) -> Iterator[Outcome[DetectResult]]: ...
    @overload
    def map(
        self,
        images: Iterable[ImageSource],
        phrases: Phrases,
        *,
        task: Literal["point"],
        concurrency: int = 8,
        progress: Callable[[Progress], object] | None = None,
        **options: Unpack[Options],
    ) -> Iterator[Outcome[PointResult]]: ...
    def map(
        self,
        images: Iterable[ImageSource],
        phrases: Phrases,
        *,
        task: Literal["detect", "point"] = "detect",
        concurrency: int = 8,
        progress: Callable[[Progress], object] | None = None,
        **options: Unpack[Options],
    ) -> Iterator[Any]:
        """The same question about many images, several at a time; outcomes come in the order of `images`.

        An image that fails has an outcome with its `error`; the others go on. `images` may be a generator: it
        is read only a little ahead.

        Args:
            task: detect or point.
            concurrency: how many calls run at the same time.
            progress: called in this thread each time that some image is done.
        """
        check_map(images, task, concurrency, progress)
        fields = fields_of(self._config, phrases, options)
        asked, counter = fields["objects"], Counter(images, progress)
        check_phrases(asked)
        if task == "detect":
            return map_threads(
                lambda image: self.detect(image, asked, **options), images, concurrency, counter
            )
        return map_threads(lambda image: self.point(image, asked, **options), images, concurrency, counter)

    def models(self) -> list[Model]:
        """The models that can be asked for now."""
        return self._sender.send(models(self._config))

    def close(self) -> None:
        """Close the connections. A closed client cannot be used again."""
        self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.url!r})"

    def _ask(
        self, task: Task[F, R], image: ImageSource, phrases: Phrases, stream: bool, options: Options
    ) -> R | Stream[F, R]:
        prepared = prepare(image)
        call = ask(task, self._config, prepared, phrases, options, stream=stream)
        if stream:
            answering = Answering(task, image, size_of(prepared), call.id)
            return Stream(answering, self._sender.stream(call))
        result = self._sender.send(call)
        result.with_source(image)
        return result


class Images:
    """Images that stay with the service for a while: prepared once, asked about often."""

    def __init__(self, config: Config, sender: Sender) -> None:
        self._config = config
        self._sender = sender

    def upload(self, image: ImageSource) -> ImageHandle:
        """Leave an image with the service; its handle takes the place of the image in calls.

        Every use keeps it alive longer; a call with one that has expired raises `NotFound`.
        """
        prepared = prepare(image)
        if isinstance(prepared, ImageHandle):
            return prepared
        return self._sender.send(upload(self._config, prepared))

    def delete(self, image: ImageHandle | str) -> None:
        """Take an image away before it expires. One that is gone already is no error.

        Args:
            image: a handle, or its `image_id`.
        """
        with suppress(NotFound):
            self._sender.send(forget(self._config, image))
