"""Every setting of the service in one place: a flag wins over the environment, that over the default.

The environment variable of a field is `POINTBOX_` and its name in capitals, so `queue_depth` is read from
`POINTBOX_QUEUE_DEPTH`.
"""

from __future__ import annotations

import ipaddress
import math
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from app.intake.addresses import Policy
from app.origins import read_origins
from app.setting_names import flag, renamed
from app.setting_values import SettingsError, read_adapters, read_value

PREFIX = "POINTBOX_"
SHORTEST_KEY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `pointbox serve`, `api` and `worker` run with. Sizes are in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 picks a free port."""
    model: str = "tiny"
    """Names or folders with commas between: `serve` starts workers for each; the first is the default."""
    workers: int = 1
    """Engine workers that `serve` starts for each model."""
    revision: str | None = None
    """Of a model of the Hugging Face hub: a branch, a tag or a commit; None: its main branch."""
    adapter: str = ""
    """LoRA adapters of the model, as name=folder with commas between."""
    device: str = "cpu"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of the weights; auto: float32 on a CPU, bfloat16 on a GPU."""
    mode: Literal["pipelined", "blocking"] = "pipelined"
    max_batch: int = 32
    """Rows of the engine: phrases decoded at the same time by one worker."""
    kv_memory: int | None = None
    """Bytes for keys and values; None: what 256 images and the rows need, as far as the device has it.
    As text it may end in K, M, G or T, powers of 1,024."""
    batch_share: float = 0.0625
    """Part of the rows that batch requests hold at most while there are interactive ones."""
    flood_share: float = 0.2
    """Part of a worker's rows that a tenant holds at most while others have requests, if more of its own are
    waiting than the worker can hold."""
    decode_mb: int = 1024
    """Megabytes that the images of one worker take while they are decoded and prepared, as estimated from
    their headers. An image that needs more is decoded when no other large one is."""
    stall_s: float = 60.0
    """An engine that does nothing for so long although it has work counts as hung: its worker ends."""

    redis_url: str | None = None
    """None: `serve` starts an embedded Valkey."""
    namespace: str = "default"
    """Several services can share one Redis under different namespaces."""
    queue_depth: int = 1000
    """Requests admitted and not yet answered, of all tenants."""
    tenant_queue_depth: int = 500
    queue_bytes: int = 512 * 1024 * 1024
    """Image bytes held in Redis for the requests above, of all tenants."""
    tenant_queue_bytes: int = 256 * 1024 * 1024

    image_ttl_s: float = 3600.0
    """How long an uploaded image is kept after its last use."""
    images_bytes: int = 512 * 1024 * 1024
    """Uploaded images held in Redis, of all tenants."""
    tenant_images_bytes: int = 256 * 1024 * 1024

    fetch: Literal["off", "allowlist", "public"] = "off"
    """Whether images behind URLs are fetched, and from where: see docs/images.md."""
    fetch_allow: str = ""
    """Host names (*.example.com for all below) and networks (10.1.0.0/16), with commas between."""
    fetch_timeout_s: float = 10.0
    cors_origins: str = ""
    """Origins of web pages that may call this service, with commas between; `*` for all."""

    body_limit_bytes: int = 20 * 1000 * 1000
    bodies_bytes: int = 512 * 1024 * 1024
    """Request bodies that an API process holds at a time, complete or not, until each request is answered."""
    body_timeout_s: float = 120.0
    """Within which the body of a request must be complete."""
    unread_timeout_s: float = 60.0
    """A client that takes nothing of its answer for so long is disconnected."""
    connections: int = 0
    """Open connections of an API process; 0: as many as the limit of open files (ulimit -n) allows."""
    default_timeout_s: float = 60.0
    max_timeout_s: float = 600.0
    result_ttl_s: float = 300.0
    """How long a final answer stays readable in Redis."""
    drain_s: float = 30.0
    """After SIGTERM, how long requests in flight may take to finish."""
    worker_id: str = ""
    """Name of this worker in the registry; empty: one is made up. A name must never be used twice."""
    auth: Literal["auto", "on", "off"] = "auto"
    """Whether keys are needed. auto: only where other machines can reach `host`."""
    bootstrap_key: str = field(default="", repr=False)
    """A key that is not in the database, for the first steps; empty: there is none."""
    allowed_hosts: str = ""
    """With keys off: names, separated by commas, that callers may use for this server in `Host` and `Origin`.
    Addresses and localhost always work."""
    data_dir: str = "~/.local/share/pointbox"
    database_url: str = field(default="", repr=False)
    """PostgreSQL or SQLite; empty: the file pointbox.db in `data_dir`."""

    stores: str = field(default="", repr=False)
    """What jobs may read and write: JSON, or the path of a file with it; empty: no jobs. See docs/jobs.md."""
    jobs: Literal["on", "off"] = "on"
    """Whether a worker runs jobs, where there are stores."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"port must be between 0 and 65535, not {self.port}")
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} must be greater than 0, not {getattr(self, name)}")
            if getattr(self, name) == math.inf:
                raise SettingsError(f"{name} must be finite, not inf")
        if not self.models:
            raise SettingsError("model must name a model")
        for name in ("revision", "adapter"):
            if getattr(self, name) and len(self.models) > 1:
                raise SettingsError(f"{name} is for one model: start the others with `pointbox worker`")
        read_adapters(self.adapter)
        if self.kv_memory is not None and self.kv_memory <= 0:
            raise SettingsError(f"kv_memory must be greater than 0, not {self.kv_memory}")
        for name in ("batch_share", "flood_share"):
            if getattr(self, name) > 1:
                raise SettingsError(f"{name} must be at most 1, not {getattr(self, name)}")
        if self.connections < 0:
            raise SettingsError(f"connections must not be negative, not {self.connections}")
        for name in ("tenant_queue_bytes", "tenant_images_bytes", "bodies_bytes"):
            if getattr(self, name) < self.body_limit_bytes:
                raise SettingsError(f"{name} must be at least body_limit_bytes")
        self.fetch_policy()
        _ = self.allowed_origins
        if self.default_timeout_s > self.max_timeout_s:
            raise SettingsError("default_timeout_s must be at most max_timeout_s")
        if self.redis_url is not None:
            _check_redis(self.redis_url)
        if self.bootstrap_key and len(self.bootstrap_key) < SHORTEST_KEY:
            raise SettingsError(f"bootstrap_key must have at least {SHORTEST_KEY} characters")
        if not self.namespace or set(self.namespace) & set("{}: \n"):
            raise SettingsError(f"namespace must be a plain word, not {self.namespace!r}")

    def fetch_policy(self) -> Policy:
        """Where images may be fetched from."""
        try:
            policy = Policy.read(self.fetch, self.fetch_allow)
        except ValueError as error:
            raise SettingsError(f"fetch_allow: {error}") from None
        if self.fetch == "allowlist" and not (policy.hosts or policy.networks):
            raise SettingsError("fetch_allow must name the allowed hosts when fetch is allowlist")
        return policy

    @property
    def allowed_origins(self) -> frozenset[str]:
        """`cors_origins`, each."""
        try:
            return read_origins(self.cors_origins)
        except ValueError as error:
            raise SettingsError(f"cors_origins {error}") from None

    @property
    def keys_needed(self) -> bool:
        """Whether callers must show a key."""
        return self.auth == "on" or (self.auth == "auto" and not _is_loopback(self.host))

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **flags: Any) -> Settings:
        """Flags that are None count as not given; an empty environment variable too.  Text is read as the
        environment's is.

        Raises:
            SettingsError: a value has the wrong type or is out of range.
        """
        environ = os.environ if environ is None else environ
        hints = typing.get_type_hints(cls)
        values = {
            name: read_value(flag(name), value, hints[name]) if isinstance(value, str) else value
            for name, value in flags.items()
            if value is not None
        }
        called = {entry.name: PREFIX + entry.name.upper() for entry in fields(cls)}
        called |= {name: flag(name) for name in values}
        for entry in fields(cls):
            variable = PREFIX + entry.name.upper()
            text = environ.get(variable, "")
            if entry.name not in values and text:
                values[entry.name] = read_value(variable, text, hints[entry.name])
        for name, value in values.items():
            hint = hints.get(name)
            choices = typing.get_args(hint)
            if typing.get_origin(hint) is Literal and value not in choices:
                raise SettingsError(f"{called[name]} must be one of {', '.join(choices)}, not {value!r}")
        try:
            return cls(**values)
        except SettingsError as error:
            raise SettingsError(renamed(str(error), called)) from None

    @property
    def engine_options(self) -> dict[str, Any]:
        """What `Engine.load` takes beside the model."""
        names = ("device", "dtype", "revision", "mode", "max_batch", "kv_memory", "batch_share")
        given = {name: getattr(self, name) for name in names}
        return {**given, "adapters": read_adapters(self.adapter)}

    @property
    def models(self) -> list[str]:
        """Names or folders."""
        return [name for part in self.model.split(",") if (name := part.strip())]

    @property
    def default_model(self) -> str:
        """What callers call the first model: a folder goes by its own name."""
        first = self.models[0]
        return Path(first).resolve().name if Path(first).is_dir() else first

    @property
    def runs_jobs(self) -> bool:
        """Whether a worker with these settings runs jobs."""
        return self.jobs == "on" and bool(self.stores)

    def to_environ(self) -> dict[str, str]:
        """These settings as environment variables, for a child process."""
        pairs = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return {PREFIX + name.upper(): str(value) for name, value in pairs if value is not None}


_POSITIVE = (
    "workers",
    "max_batch",
    "batch_share",
    "flood_share",
    "decode_mb",
    "stall_s",
    "queue_depth",
    "tenant_queue_depth",
    "queue_bytes",
    "tenant_queue_bytes",
    "image_ttl_s",
    "images_bytes",
    "tenant_images_bytes",
    "fetch_timeout_s",
    "body_limit_bytes",
    "bodies_bytes",
    "body_timeout_s",
    "unread_timeout_s",
    "default_timeout_s",
    "max_timeout_s",
    "result_ttl_s",
    "drain_s",
)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_redis(url: str) -> None:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise SettingsError("redis_url must start with redis://, rediss:// or unix://")
    from redis.connection import parse_url  # the command line starts faster without it

    try:
        parse_url(url)
    except ValueError as error:
        raise SettingsError(f"redis_url cannot be read: {error}") from None
