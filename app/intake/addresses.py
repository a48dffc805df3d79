"""Which hosts a server may be asked to fetch from: told by the address that will be connected to."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[Address]]]
Mode: TypeAlias = Literal["off", "allowlist", "public"]

_NUMERIC = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")
_HIDES_IPV4 = ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")
"""NAT64, 6to4, Teredo and IPv4-compatible addresses: what they lead to is another address."""
_TUNNELS = tuple(ipaddress.ip_network(text) for text in _HIDES_IPV4)
_HOST = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9_-]*[a-z0-9])?)*")


class Refused(Exception):
    """The host may not be fetched from; the message says why, in one sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Where images may be fetched from.

    Attributes:
        mode: off; allowlist: `hosts` only; public: every host. Either way only addresses of the public
            Internet are connected to, and those in `networks`.
        hosts: names in lower case; `*.example.com` stands for all below example.com.
        networks: private networks that are meant to be reached.
    """

    mode: Mode = "off"
    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def read(cls, mode: Mode, allow: str) -> Policy:
        """From settings. `allow` has names and networks (10.1.0.0/16) with commas between.

        Raises:
            ValueError: an entry is neither a name nor a network.
        """
        hosts, networks = set(), []
        for entry in filter(None, (part.strip().lower() for part in allow.split(","))):
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                if not _HOST.fullmatch(entry) or "/" in entry:
                    raise ValueError(f"{entry!r} is neither a host name nor a network") from None
                hosts.add(entry)
        return cls(mode, frozenset(hosts), tuple(networks))

    def check_host(self, host: str) -> None:
        """Raises Refused. `host` is in lower case, without brackets."""
        try:
            address: Address | None = ipaddress.ip_address(host)
        except ValueError:
            address = None
            if _NUMERIC.fullmatch(host.removesuffix(".").rpartition(".")[2]):
                raise Refused("an IPv4 address is written as four decimal numbers") from None
        if self.mode == "allowlist" and not self._listed(host, address):
            raise Refused("this host is not on the server's list of allowed ones")

    def check_address(self, address: Address) -> None:
        """Raises Refused for what is not on the public Internet, such as 127.0.0.1 or 169.254.169.254."""
        mapped = getattr(address, "ipv4_mapped", None)
        if mapped is not None:
            return self.check_address(mapped)
        if any(address in network for network in self.networks):
            return None
        tunnelled = any(address in network for network in _TUNNELS)
        if tunnelled or address.is_multicast or address.is_reserved or not address.is_global:
            raise Refused("this host has an address that is not on the public Internet")
        return None

    def _listed(self, host: str, address: Address | None) -> bool:
        if address is not None:
            return host in self.hosts or any(address in network for network in self.networks)
        host = host.removesuffix(".")
        parents = host.split(".")[1:]
        return host in self.hosts or any(
            "*." + ".".join(parents[index:]) in self.hosts for index in range(len(parents))
        )


async def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host, in the order in which the system would try them. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    texts = dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found)
    return [ipaddress.ip_address(text) for text in texts]
