"""Web servers that behave and that do not, on addresses of this machine; and names that lead to them."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from app.intake.addresses import Address

Serve = Callable[[str, dict[str, str], asyncio.StreamWriter], Awaitable[None]]
OPEN = "127.0.0.2"
"""Stands for an address of the public Internet: the tests' policy allows it."""
PRIVATE = "127.0.0.1"


class Web:
    """One server per address, all on one port; `seen` has the requests of each: (path, headers)."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: dict[str, list[tuple[str, dict[str, str]]]] = {}

    def url(self, host: str, path: str = "/", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@asynccontextmanager
async def web(serve: Serve, *addresses: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    """Servers on `addresses` that read a request and leave the answer to `serve`."""
    served = Web()
    servers = await _start(served, serve, addresses or (OPEN, PRIVATE), tls)
    try:
        yield served
    finally:
        for server in servers:
            server.close()


async def _start(
    served: Web, serve: Serve, addresses: tuple[str, ...], tls: ssl.SSLContext | None
) -> list[asyncio.Server]:
    """All on one port: one that is free on the first address and, sooner or later, on the others."""
    while True:
        servers: list[asyncio.Server] = []
        served.port = 0
        try:
            for address in addresses:
                handle = _handler(served.seen.setdefault(address, []), serve)
                servers.append(await asyncio.start_server(handle, address, served.port, ssl=tls))
                served.port = servers[0].sockets[0].getsockname()[1]
            return servers
        except OSError:
            for server in servers:
                server.close()


def _handler(
    seen: list[tuple[str, dict[str, str]]], serve: Serve
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            path = first.split(" ")[1]
            seen.append((path, headers))
            await serve(path, headers, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return handle


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; `headers` with _ for -."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def names(**table: str | list[str]) -> Callable[[str, int], Awaitable[list[Address]]]:
    """A resolver; where a name has several lists of addresses, each look-up takes the next one."""
    left = {
        name.replace("_", "."): [values] if isinstance(values, str) else list(values)
        for name, values in table.items()
    }

    async def resolve(host: str, port: int) -> list[Address]:
        try:
            return [ipaddress.ip_address(host)]
        except ValueError:
            pass
        if host not in left:
            raise OSError("no such name")
        following = left[host]
        texts = following.pop(0) if len(following) > 1 else following[0]
        return [ipaddress.ip_address(text) for text in texts.split()]

    return resolve
