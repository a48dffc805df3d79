"""Ports to listen on."""

from __future__ import annotations

import socket

from app.problems import ProblemError


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses at this moment."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def claim_port(host: str, port: int) -> int:
    """The port itself, or for 0 a free one.

    Raises:
        ProblemError: nobody could listen there.
    """
    try:
        if port == 0:
            return free_port(host)
        with socket.socket(_family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        detail = f"Cannot listen on {host}:{port}: {error.strerror}."
        raise ProblemError("unavailable", detail) from None
    return port


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
