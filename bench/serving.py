"""A service of our own to measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SERVE = (sys.executable, "-m", "app.cli", "serve", "--port", "0")
READY = "Pointbox is ready at "


@contextmanager
def service(**settings: str) -> Iterator[str]:
    """`pointbox serve` on a free port, with POINTBOX_ settings by their short names; its address."""
    environ = {"POINTBOX_LOG_LEVEL": "warning"} | {f"POINTBOX_{k.upper()}": v for k, v in settings.items()}
    with subprocess.Popen(SERVE, stdout=subprocess.PIPE, text=True, env=os.environ | environ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(READY):
                    yield line.removeprefix(READY).split()[0]
                    return
            raise RuntimeError("the service did not start")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
