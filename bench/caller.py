"""A small HTTP client: connections that are kept, POST only, as little CPU as can be."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

IDLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Caller:
    """Sends requests to one server, each on a connection that no other uses at the time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, target: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Raises OSError or EOFError when the server goes away."""
        reader, writer = self._kept() or await asyncio.open_connection(self._host, self._port)
        kept = False
        try:
            lines = [f"POST {target} HTTP/1.1", f"host: {self._host}", f"content-length: {len(body)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join([*lines, "\r\n"]).encode() + body)
            reply = await _read(reader)
            kept = reply.headers.get("connection") != "close"
        finally:
            if kept:
                self._idle.append((time.monotonic(), reader, writer))
            else:
                writer.close()
        return reply

    def close(self) -> None:
        for *_, writer in self._idle:
            writer.close()

    def _kept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The connection used last; a server closes those that are idle for long, at any moment."""
        while self._idle:
            since, reader, writer = self._idle.pop()
            if time.monotonic() < since + IDLE_S:
                return reader, writer
            writer.close()
        return None


async def _read(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Reply(int(head[0].split()[1]), headers, body)
