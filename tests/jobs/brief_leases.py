"""`pointbox serve` whose jobs are free soon after their runner died, as a program: python FILE ROLE."""

from __future__ import annotations

import sys

from app.cli import main
from app.jobs import ledger, runner
from app.serve import Commands, run_serve
from app.settings import Settings

LEASE_S = 5.0


def serve() -> int:
    return run_serve(Settings.load(port=0), Commands(worker=(sys.executable, __file__, "worker")))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        sys.exit(serve())
    ledger.LEASE_S, runner.BEAT_S = LEASE_S, LEASE_S / 6
    main(sys.argv[1:])
