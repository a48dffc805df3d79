"""Which hosts and addresses are refused: anything that is not plainly on the public Internet."""

from __future__ import annotations

import ipaddress

import pytest

from app.intake.addresses import Policy, Refused, resolve

PUBLIC = Policy("public")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1",
        "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    with pytest.raises(Refused, match="not on the public Internet"):
        PUBLIC.check_address(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:2800:220:1::1", "::ffff:8.8.8.8"])
def test_public_addresses(address: str) -> None:
    PUBLIC.check_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "127.1", "127.0.1", "127.0.0.1.", "017700000001",
     "134744072", "0x08080808", "8.8.2056", "1.2.3.4.5", "a.1"],
)  # fmt: skip
def test_numbers_that_are_no_plain_address(host: str) -> None:
    with pytest.raises(Refused, match="four decimal numbers"):
        PUBLIC.check_host(host)


async def test_what_the_system_makes_of_a_name() -> None:
    for address in await resolve("localhost", 80):
        with pytest.raises(Refused):
            PUBLIC.check_address(address)
    assert await resolve("127.0.0.1", 80) == [ipaddress.ip_address("127.0.0.1")]


def test_the_list_of_allowed_hosts() -> None:
    policy = Policy.read("allowlist", " Images.Example.com, *.cdn.example.com,10.1.0.0/16 ,, 8.8.4.4")
    for host in ("images.example.com", "images.example.com.", "a.cdn.example.com", "a.b.cdn.example.com",
                 "10.1.2.3", "8.8.4.4"):  # fmt: skip
        policy.check_host(host)
    for host in ("example.com", "evil-images.example.com", "images.example.com.evil.org", "cdn.example.com",
                 "evilcdn.example.com", "10.2.0.1", "8.8.8.8", "::1", "com"):  # fmt: skip
        with pytest.raises(Refused, match="list of allowed"):
            policy.check_host(host)
    policy.check_address(ipaddress.ip_address("10.1.2.3"))
    for address in ("10.2.0.1", "127.0.0.1"):
        with pytest.raises(Refused):
            policy.check_address(ipaddress.ip_address(address))


@pytest.mark.parametrize("allow", ["http://a.org", "a b", "a.org/x", "10.1.2.3/16", "*", "*.*.org", "-a.org"])
def test_what_cannot_be_allowed(allow: str) -> None:
    with pytest.raises(ValueError, match="neither a host name nor a network"):
        Policy.read("allowlist", allow)
