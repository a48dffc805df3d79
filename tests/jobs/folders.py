"""A service's stores over folders."""

from __future__ import annotations

import json
from pathlib import Path


def stores(root: Path) -> str:
    """POINTBOX_STORES for `in`, which is only read, and `out`."""
    return json.dumps({"in": {"url": str(root / "in")}, "out": {"url": str(root / "out"), "write": True}})
