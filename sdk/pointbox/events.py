"""Server-sent events, and the answer that they make. Bytes go in as they come; nothing here does I/O."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import msgspec

from pointbox.calls import F, R, Task
from pointbox.errors import ConnectionFailed, InvalidResponse, Problem
from pointbox.pictures import ImageSource
from pointbox.refusals import of_problem


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `data` is its lines, joined."""

    name: str
    data: str


class EventParser:
    """The event stream format of the WHATWG, fed in pieces of any size. Comments and ids are left out."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._rest = ""
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that `chunk` completes."""
        text = self._rest + self._decode(chunk)
        # A carriage return at the end may be half a line end.
        held = text.endswith("\r")
        lines = (text[:-1] if held else text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._rest = lines.pop() + ("\r" if held else "")
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            event = Event(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        return None


class Answering(Generic[F, R]):
    """A streamed answer while it comes in: what is found goes out, `result` is there at the end.

    Args:
        image: what was asked about, for the result's `draw`.
        size: of the image in pixels, as far as it is known on this side; (0, 0) otherwise.
        request_id: that of the call.
    """

    def __init__(self, task: Task[F, R], image: ImageSource, size: tuple[int, int], request_id: str) -> None:
        self._task = task
        self._image = image
        self._size = size
        self._request_id = request_id
        self._parser = EventParser()
        self.result: R | None = None

    def feed(self, chunk: bytes) -> Iterator[F]:
        """What `chunk` says was found; empty bytes are the end of the stream.

        Raises:
            APIError: the service gave up. InvalidResponse: it is no Pointbox service.
            ConnectionFailed: this is the end, and the answer is not complete.
        """
        if not chunk:
            raise ConnectionFailed("The stream ended before the answer did.", self._request_id)
        for event in self._parser.feed(chunk):
            try:
                if event.name == "object":
                    yield self._placed(msgspec.json.decode(event.data, type=self._task.found))
                elif event.name == "done":
                    self.result = msgspec.json.decode(event.data, type=self._task.result)
                    self.result.with_source(self._image)
                    return
                elif event.name == "error":
                    raise of_problem(msgspec.json.decode(event.data, type=Problem))
            except msgspec.MsgspecError as error:
                raise InvalidResponse(
                    f"This is not how Pointbox streams: {error}.", self._request_id
                ) from None

    def whole(self) -> R:
        """The result of a stream that has ended.

        Raises:
            ConnectionFailed: it was closed before its end.
        """
        if self.result is None:
            raise ConnectionFailed("The stream was closed before the answer was complete.", self._request_id)
        return self.result

    def _placed(self, found: F) -> F:
        width, height = self._size
        return msgspec.structs.replace(found, image_width=width, image_height=height)
