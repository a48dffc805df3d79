"""`pointbox serve` with the fake engine in its worker, as a program: python FILE ROLE."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from app import child, logs, tracing
from app.admission.worker import work
from app.serve import Commands, run_serve
from app.settings import Settings
from tests.admission.fakes import FakeEngine, fake_decode


def worker() -> int:
    settings = Settings.load()
    logs.configure(settings.log_level, "worker")
    tracing.configure("worker")
    engine = FakeEngine(Path(settings.model).name)
    asyncio.run(work(settings, lambda: engine, fake_decode))
    return 0


def serve(role: str) -> int:
    """A service whose worker has this role."""
    command = (sys.executable, __file__, role)
    return run_serve(Settings.load(port=0), Commands(worker=command))


def partly() -> int:
    """Of several models one cannot start, until there is a file FAKE_FIXED."""
    settings = Settings.load()
    if settings.model.startswith("bad") and not os.path.exists(os.environ["FAKE_FIXED"]):
        return int(os.environ["FAKE_STATUS"])
    return worker()


def serve_partly() -> int:
    child.RETRY_S = 0.5
    return serve("partly")


ROLES = {
    "serve-partly": serve_partly,
    "partly": partly,
    "serve": lambda: serve("worker"),
    "serve-broken": lambda: serve("broken"),
    "serve-misconfigured": lambda: serve("misconfigured"),
    "worker": worker,
    "broken": lambda: 3,
    "misconfigured": lambda: 2,
}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(ROLES[sys.argv[1]]())
