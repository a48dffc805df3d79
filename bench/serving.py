"""A service of our own to measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

POINTBOX = (sys.executable, "-m", "app.cli")
READY = "Pointbox is ready at "
MB = 1e6


@dataclass(frozen=True, slots=True)
class Service:
    """A service that runs."""

    url: str
    pid: int

    def memory_mb(self) -> float:
        """Resident memory of all its processes."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in [self.pid, *children])
        return pages * os.sysconf("SC_PAGE_SIZE") / MB


def environ(settings: dict[str, str]) -> dict[str, str]:
    """The environment of a process with POINTBOX_ settings by their short names."""
    named = {f"POINTBOX_{name.upper()}": value for name, value in settings.items()}
    return os.environ | {"POINTBOX_LOG_LEVEL": "error"} | named


@contextmanager
def service(**settings: str) -> Iterator[Service]:
    """`pointbox serve` on a free port."""
    command = [*POINTBOX, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ(settings)) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith(READY):
                    yield Service(line.removeprefix(READY).split()[0], process.pid)
                    return
            raise RuntimeError("the service did not start")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def make_key(tenant: str, settings: dict[str, str], scopes: str = "infer") -> str:
    """A key of a service that will run with these settings."""
    command = [*POINTBOX, "keys", "create", "--tenant", tenant, "--scopes", scopes]
    made = subprocess.run(command, env=environ(settings), capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"no key for {tenant}: {made.stderr}")
    return made.stdout.strip()
