"""Images behind URLs, fetched so that nobody can make this server look into its own network.

For every hop of a redirect the name is resolved once, every address is checked, and the connection goes to a
checked address, so that a name that resolves differently the second time changes nothing. The certificate is
still checked against the name.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import httpx

from app.intake.addresses import Address, Policy, Refused, Resolve, resolve
from app.intake.sources import Remote
from app.problems import ProblemError

MAX_HOPS = 4
MAX_FETCHES = 8
"""Of one tenant at the same time; its further ones wait, and nobody else does."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"accept": "image/*", "accept-encoding": "identity", "user-agent": "pointbox"}


@dataclass(slots=True)
class Fetcher:
    """One per API process.

    Args:
        policy: where it may go.
        max_bytes: of an image; more is never read.
        limit_s: for everything together: names, connections, redirects and the bytes.
        resolve: name and port -> addresses.
    """

    policy: Policy
    max_bytes: int
    limit_s: float
    resolve: Resolve = resolve
    certificates: ssl.SSLContext = field(default_factory=httpx.create_ssl_context)
    _turns: WeakValueDictionary[str, asyncio.Semaphore] = field(default_factory=WeakValueDictionary)
    """By tenant, while it fetches."""

    async def fetch(self, source: Remote, tenant: str, within_s: float) -> bytes:
        """The bytes behind a URL; whether they are an image is for others to say.

        Raises:
            ProblemError: invalid-request when the URL may not or cannot be fetched, image-too-large.
        """
        if self.policy.mode == "off":
            raise _refused(source, "fetching remote images is off on this server")
        limit_s = min(self.limit_s, within_s)
        turns = self._turns.setdefault(tenant, asyncio.Semaphore(MAX_FETCHES))
        try:
            async with asyncio.timeout(limit_s), turns:
                return await self._follow(source)
        except Refused as error:
            raise _refused(source, str(error)) from None
        except TimeoutError:
            raise _refused(source, f"it did not arrive within {limit_s:g} seconds") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError):
            raise _refused(source, "the server there could not be reached, or broke off") from None

    async def _follow(self, source: Remote) -> bytes:
        url = _parsed(source.url)
        for _ in range(MAX_HOPS):
            answer = await self._hop(url, source)
            if isinstance(answer, bytes):
                return answer
            url = _parsed(answer)
        raise Refused(f"it is redirected more than {MAX_HOPS - 1} times")

    async def _hop(self, url: httpx.URL, source: Remote) -> bytes | str:
        """The bytes, or where to look instead."""
        addresses = await self._checked_addresses(url)
        # A client of its own: nothing of one caller's fetch, cookies or connections, serves another's.
        async with httpx.AsyncClient(
            trust_env=False, verify=self.certificates, timeout=self.limit_s
        ) as client:
            for address in addresses[:-1]:
                try:
                    return await self._get(client, url, address, source)
                except httpx.ConnectError:
                    continue
            return await self._get(client, url, addresses[-1], source)

    async def _checked_addresses(self, url: httpx.URL) -> list[Address]:
        host = url.raw_host.decode("ascii")
        self.policy.check_host(host.lower())
        try:
            addresses = await self.resolve(host, _port(url))
        except OSError:
            addresses = []
        if not addresses:
            raise Refused("this host has no address")
        for address in addresses:
            self.policy.check_address(address)
        return addresses

    async def _get(
        self, client: httpx.AsyncClient, url: httpx.URL, address: Address, source: Remote
    ) -> bytes | str:
        request = client.build_request(
            "GET",
            url.copy_with(host=str(address)),
            headers={**_HEADERS, "host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": url.raw_host.decode("ascii")},
        )
        response = await client.send(request, stream=True)
        try:
            if response.status_code in _REDIRECTS and "location" in response.headers:
                return _joined(url, response.headers["location"])
            if response.status_code != 200:
                raise Refused(f"the server there answered with status {response.status_code}")
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise Refused("the server there compressed it, though asked not to")
            return await self._body(response, source)
        finally:
            await response.aclose()

    async def _body(self, response: httpx.Response, source: Remote) -> bytes:
        data = bytearray()
        async for part in response.aiter_raw():
            data += part
            if len(data) > self.max_bytes:
                detail = f"The image behind the URL has more than {self.max_bytes} bytes."
                raise ProblemError("image-too-large", detail, field=source.field)
        return bytes(data)


def _parsed(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise Refused("it is not a URL") from None
    if url.scheme not in ("http", "https"):
        raise Refused(f"{url.scheme}: URLs are not fetched")
    if not url.host:
        raise Refused("the URL names no host")
    if (url.port or 0) > 65535:
        raise Refused("the URL names no port that there is")
    if url.userinfo:
        raise Refused("a URL with a user name or password is not fetched")
    return url


def _joined(url: httpx.URL, location: str) -> str:
    try:
        return str(url.join(location))
    except (httpx.InvalidURL, ValueError):  # the standard library's, of brackets that do not match
        raise Refused("it is redirected to what is not a URL") from None


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _refused(source: Remote, reason: str) -> ProblemError:
    detail = f"The image cannot be fetched: {reason}. Send the image itself instead."
    return ProblemError("invalid-request", detail, field=source.field)
