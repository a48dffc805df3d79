"""Short ways to ask the running service."""

from __future__ import annotations

import base64
import socket
from typing import Any

import httpx

PHRASES = ["red circle", "yellow star", "blue square", "green triangle"]


def detect(client: httpx.Client, image: bytes, **fields: Any) -> dict[str, Any]:
    encoded = base64.b64encode(image).decode()
    response = client.post("/v1/detect", json={"image": encoded, "object": "red circle"} | fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def detect_all(client: httpx.Client, image: bytes, phrases: list[str], **fields: Any) -> dict[str, Any]:
    encoded = base64.b64encode(image).decode()
    response = client.post("/v1/detect", json={"image": encoded, "objects": phrases} | fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def told(client: httpx.Client, *parts: bytes) -> bytes:
    """What the service answers to these bytes, sent one after the other, until it ends the connection."""
    address = (client.base_url.host, client.base_url.port or 80)
    with socket.create_connection(address, timeout=60) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:  # it has heard enough
            pass
        answer = b""
        try:
            while more := connection.recv(65_536):
                answer += more
        except ConnectionResetError:
            pass
    return answer
