"""Images behind URLs: every hop checked, connections pinned, time and size finite; against real servers."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.intake.addresses import Policy
from app.intake.fetch import MAX_FETCHES, Fetcher
from app.intake.sources import Remote
from app.problems import ProblemError
from tests.admission.fakes import until
from tests.intake.web import OPEN, PRIVATE, answer, names, web

PICTURE = b"\x89PNG and so on"
MAX_BYTES = 100_000
CERTIFICATE = Path(__file__).with_name("good.test.pem")
"""Of good.test, signed by itself, with its key; until 2126."""


def fetcher(mode: Any = "public", allow: str = f"{OPEN}/32", **changes: Any) -> Fetcher:
    values = {"max_bytes": MAX_BYTES, "limit_s": 30.0, "resolve": names(good_test=OPEN, bad_test=PRIVATE)}
    return Fetcher(Policy.read(mode, allow), **{**values, **changes})


async def refused(fetcher: Fetcher, url: str, within_s: float = 60.0) -> ProblemError:
    with pytest.raises(ProblemError) as caught:
        await fetcher.fetch(Remote(url), "us", within_s)
    assert caught.value.field == "image_url"
    assert caught.value.status in (413, 422)
    assert PRIVATE not in caught.value.detail
    return caught.value


async def picture(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    writer.write(answer(PICTURE))
    await writer.drain()


async def test_off_by_default() -> None:
    problem = await refused(fetcher("off"), "http://8.8.8.8/a.png")
    assert "off on this server" in problem.detail


async def test_a_picture() -> None:
    async with web(picture) as served:
        url = served.url("good.test", "/a b.png?q=1")
        assert await fetcher().fetch(Remote(url), "us", 60) == PICTURE
        ((path, headers),) = served.seen[OPEN]
    assert path == "/a%20b.png?q=1"
    assert headers["host"] == f"good.test:{served.port}"
    assert headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & set(headers)


async def test_only_hosts_on_the_list() -> None:
    async with web(picture) as served:
        listed = fetcher("allowlist", f"good.test, {OPEN}/32")
        assert await listed.fetch(Remote(served.url("good.test")), "us", 60) == PICTURE
        other = fetcher("allowlist", f"other.test, {OPEN}/32")
        assert "list of allowed" in (await refused(other, served.url("good.test"))).detail
        assert not served.seen[PRIVATE]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1", "0.0.0.0", "2130706433",
     "0177.0.0.1", "0x7f000001", "127.1", "bad.test", "localhost", "%31%32%37.0.0.1", "127。0。0。1",
     "①②⑦.0.0.1"],
)  # fmt: skip
async def test_private_hosts(host: str) -> None:
    async with web(picture) as served:
        problem = await refused(fetcher(), served.url(host))
        assert problem.slug == "invalid-request"
        assert not served.seen[PRIVATE]


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    async with web(picture) as served:
        several = fetcher(resolve=names(mixed_test=f"{OPEN} {PRIVATE}"))
        assert "not on the public" in (await refused(several, served.url("mixed.test"))).detail
        assert served.seen == {OPEN: [], PRIVATE: []}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("host", [PRIVATE, "bad.test", "2130706433", "[::1]"])
async def test_a_redirect_to_a_private_host(status: int, host: str) -> None:
    async def redirect(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(answer(status=f"{status} Go", Location=f"http://{host}:{served.port}/secret"))
        await writer.drain()

    async with web(redirect) as served:
        await refused(fetcher(), served.url("good.test"))
        assert len(served.seen[OPEN]) == 1
        assert not served.seen[PRIVATE]


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://good.test/", "//", "http://", "gopher:x", "http://[", "//]", "http://\xff"],
)
async def test_redirects_to_what_is_not_http(location: str) -> None:
    async def redirect(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(answer(status="302 Go", Location=location))
        await writer.drain()

    async with web(redirect) as served:
        await refused(fetcher(), served.url("good.test"))


async def test_redirects_are_followed_but_not_for_ever() -> None:
    async def redirect(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        left = int(path.removeprefix("/"))
        location = "/0" if left == 1 else f"http://good.test:{served.port}/{left - 1}"
        writer.write(answer(PICTURE) if left == 0 else answer(status="302 Go", Location=location))
        await writer.drain()

    async with web(redirect) as served:
        assert await fetcher().fetch(Remote(served.url("good.test", "/3")), "us", 60) == PICTURE
        assert "more than 3 times" in (await refused(fetcher(), served.url("good.test", "/4"))).detail


async def test_a_name_that_resolves_differently_the_second_time() -> None:
    """The check and the connection use one look-up; the next hop is looked up, and checked, again."""

    async def redirect(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(answer(PICTURE) if path == "/b" else answer(status="302 Go", Location="/b"))
        await writer.drain()

    async with web(redirect) as served:
        rebinding = fetcher(resolve=names(rebind_test=[OPEN, PRIVATE]))
        assert await rebinding.fetch(Remote(served.url("rebind.test", "/b")), "us", 60) == PICTURE
        assert len(served.seen[OPEN]) == 1
        rebinding = fetcher(resolve=names(rebind_test=[OPEN, PRIVATE]))
        await refused(rebinding, served.url("rebind.test", "/a"))
        assert not served.seen[PRIVATE]


async def silent(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def trickle(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while not writer.is_closing():
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def slow_head(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"H")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("serve", [silent, trickle])
async def test_servers_that_take_for_ever(serve: Any) -> None:
    async with web(serve) as served:
        problem = await refused(fetcher(limit_s=0.5), served.url("good.test"))
        assert "within 0.5 seconds" in problem.detail
        problem = await refused(fetcher(limit_s=30), served.url("good.test"), within_s=0.5)
        assert "within 0.5 seconds" in problem.detail


async def test_an_endless_head() -> None:
    async with web(slow_head) as served:
        await refused(fetcher(limit_s=0.5), served.url("good.test"))


async def test_a_resolver_that_never_answers() -> None:
    async def resolve(host: str, port: int) -> Any:
        await asyncio.sleep(60)

    assert (
        "within 0.2 seconds" in (await refused(fetcher(resolve=resolve, limit_s=0.2), "http://a.org/")).detail
    )


@pytest.mark.parametrize("claimed", [None, 10, MAX_BYTES + 1, 10**15])
async def test_an_endless_body(claimed: int | None) -> None:
    async def endless(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        length = f"Content-Length: {claimed}\r\n" if claimed else ""
        writer.write(f"HTTP/1.1 200 OK\r\nConnection: close\r\n{length}\r\n".encode())
        while not writer.is_closing():
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with web(endless) as served:
        if claimed == 10:
            assert await fetcher().fetch(Remote(served.url("good.test")), "us", 60) == b"x" * 10
            return
        started = time.monotonic()
        problem = await refused(fetcher(), served.url("good.test"))
        assert (problem.slug, problem.status) == ("image-too-large", 413)
        assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    "told",
    [
        answer(status="404 Not Found"), answer(status="204 No Content"), answer(status="500 Oops"),
        answer(status="302 Go"), answer(b"\x1f\x8b", Content_Encoding="gzip"), b"nonsense\r\n\r\n", b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    ],
)  # fmt: skip
async def test_answers_that_are_no_picture(told: bytes) -> None:
    async def serve(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(told)
        await writer.drain()

    async with web(serve) as served:
        assert (await refused(fetcher(), served.url("good.test"))).slug == "invalid-request"


@pytest.mark.parametrize(
    "url",
    ["http://", "http:///a", "http://user:word@good.test/", "http://good.test@8.8.8.8/", "http://[::1",
     "http://a b/",
     "http://good.test:99999/", "http://good.test:x/", "http://\x00/", "http://" + "a" * 300 + ".org/",
     "http://no-such-name.test/", "http://xn--a/", "http://.../", "https://good.test:1/"],
)  # fmt: skip
async def test_urls_that_lead_nowhere(url: str) -> None:
    assert (await refused(fetcher(), url)).slug == "invalid-request"


@settings(max_examples=200, deadline=None)
@given(st.text("http:/@[]%.?#\\ \0éß①。0127x-_*&=+;", max_size=30))
async def test_any_url_is_a_problem_at_worst(text: str) -> None:
    nowhere = fetcher(resolve=names())
    for url in (text, f"http://{text}"):
        assert (await refused(nowhere, url)).slug == "invalid-request"


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    async with web(picture, OPEN) as served:
        policy = fetcher(allow="127.0.0.0/29", resolve=names(two_test=f"127.0.0.3 {OPEN}"))
        assert await policy.fetch(Remote(served.url("two.test")), "us", 60) == PICTURE


async def test_certificates_are_checked_against_the_name() -> None:
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=CERTIFICATE)
    server.load_cert_chain(CERTIFICATE)
    asked: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with web(picture, OPEN, tls=server) as served:
        fetching = fetcher(certificates=trusting, resolve=names(good_test=OPEN, other_test=OPEN))
        assert await fetching.fetch(Remote(served.url("good.test", scheme="https")), "us", 60) == PICTURE
        assert asked == ["good.test"]
        await refused(fetching, served.url("other.test", scheme="https"))
        await refused(fetcher(), served.url("good.test", scheme="https"))  # signed by nobody known
        assert len(served.seen[OPEN]) == 1


async def test_a_tenant_has_few_at_a_time_and_holds_up_nobody_else() -> None:
    running, most, gate = 0, 0, asyncio.Event()

    async def serve(path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        if path == "/held":
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
        await picture(path, headers, writer)

    async with web(serve) as served:
        one = fetcher()
        held = Remote(served.url("good.test", "/held"))
        theirs = [asyncio.create_task(one.fetch(held, "them", 60)) for _ in range(20)]
        await until(lambda: running == MAX_FETCHES)
        assert await one.fetch(Remote(served.url("good.test")), "us", 60) == PICTURE
        gate.set()
        assert await asyncio.gather(*theirs) == [PICTURE] * 20
    assert most == MAX_FETCHES
