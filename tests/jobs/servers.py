"""Real S3 servers for the tests: SeaweedFS, which checks secrets, and moto, which keeps odd keys."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from app.jobs.s3 import S3Store

START_S = 120
ADMIN, READER = ("admin-key", "admin-secret"), ("reader-key", "reader-secret")
IDENTITIES = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": ADMIN[0], "secretKey": ADMIN[1]}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": READER[0], "secretKey": READER[1]}],
            "actions": ["Read", "List"],
        },
    ]
}
WAYS = ("master", "volume", "filer", "admin")


@dataclass
class Weed:
    """A SeaweedFS that can be stopped and started again on its port; ends with its parent."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="weed-")))
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        ports = free_ports(2 * len(WAYS) + 2)
        self.port = self.port or ports[-1]
        identities = self.folder / "identities.json"
        identities.write_text(json.dumps(IDENTITIES))
        ways = [
            flag
            for n, way in enumerate(WAYS)
            for flag in (f"-{way}.port={ports[2 * n]}", f"-{way}.port.grpc={ports[2 * n + 1]}")
        ]
        self.process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("weed")),
                "-logtostderr",
                "mini",
                f"-dir={self.folder / 'data'}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-master.telemetry=false",
                f"-s3.config={identities}",
                f"-s3.port={self.port}",
                f"-s3.port.grpc={ports[-2]}",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                "-webdav=false",
                *ways,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=_die_with_parent,
        )
        client = client_of(self.endpoint)
        deadline = time.monotonic() + START_S
        while True:
            assert self.process.poll() is None, "SeaweedFS ended"
            assert time.monotonic() < deadline, "SeaweedFS did not start"
            try:
                client.list_buckets()
                client.create_bucket(Bucket=f"probe{time.monotonic_ns()}")
                return
            except (BotoCoreError, ClientError):
                time.sleep(0.2)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def client_of(endpoint: str, keys: tuple[str, str] = ADMIN) -> Any:
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, connect_timeout=2)
    session = boto3.Session(*keys, region_name="us-east-1")
    return session.client("s3", endpoint_url=endpoint, config=config)


def store_at(endpoint: str, bucket: str, prefix: str = "", keys: tuple[str, str] = ADMIN) -> S3Store:
    return S3Store(
        bucket,
        prefix,
        endpoint=endpoint,
        path_style=True,
        allow_http=True,
        access_key=keys[0],
        secret_key=keys[1],
    )


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, below those that the system hands out itself."""
    sockets, ports = [], []
    for port in range(20000 + os.getpid() % 5000, 32000):
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            probe.close()
            continue
        sockets.append(probe)
        ports.append(port)
        if len(ports) == count:
            break
    for probe in sockets:
        probe.close()
    return ports


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
