"""Settings as text: how their values are read."""

from __future__ import annotations

import re
from typing import Any


class SettingsError(ValueError):
    """A setting has a value that cannot be used; the message is one line and names the setting."""


def read_value(variable: str, text: str, hint: Any) -> Any:
    """As the type that the setting has.  Raises SettingsError."""
    try:
        if hint is int:
            return int(text)
        if hint is float:
            return float(text)
    except ValueError:
        kind = "a whole number" if hint is int else "a number"
        raise SettingsError(f"{variable} must be {kind}, not {text!r}") from None
    return _parse_size(variable, text) if hint == int | None else text


def read_adapters(text: str) -> dict[str, str]:
    """Folders by name.  Raises SettingsError."""
    folders: dict[str, str] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, equals, folder = (part.strip() for part in entry.partition("="))
        if not (name and equals and folder):
            raise SettingsError(f"adapter must be name=folder, not {entry!r}")
        if name in folders:
            raise SettingsError(f"adapter has the name {name!r} twice")
        folders[name] = folder
    return folders


def _parse_size(variable: str, text: str) -> int:
    """2G, 512 MiB, 1.5gb or plain bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise SettingsError(f"{variable} must be a number of bytes, such as 512M or 2G, not {text!r}")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))
