"""The stores that callers may name: the operator's configuration, never the caller's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from app.jobs.s3 import S3Store
from app.jobs.schemas import SourcePlace, StorePlace
from app.jobs.stores import FolderStore, Store
from app.problems import ProblemError
from app.settings import SettingsError
from app.strict_json import decode_json


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A store in POINTBOX_STORES.

    url: `s3://bucket/prefix` or a folder.
    access_key_env, secret_key_env: names of environment variables; without them boto3's usual places.
    tenants: who may name it; None: everyone.
    write: whether jobs may write to it.
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    allow_http: bool = False
    access_key_env: str | None = None
    secret_key_env: str | None = None
    tenants: list[str] | None = None
    write: bool = False


@dataclass(frozen=True, slots=True)
class Stores:
    """By name, as POINTBOX_STORES says."""

    by_name: dict[str, StoreConfig]

    @classmethod
    def read(cls, text: str) -> Stores:
        """JSON, or the path of a file that holds it; empty: there are none.  Raises SettingsError."""
        if not text.strip():
            return cls({})
        try:
            data = text.encode() if text.lstrip().startswith("{") else Path(text).read_bytes()
            by_name = decode_json(data, dict[str, msgspec.Raw])
        except OSError as error:
            raise SettingsError(f"POINTBOX_STORES: {text} cannot be read: {error.strerror}") from None
        except ProblemError as problem:
            raise SettingsError(f"POINTBOX_STORES must be JSON, stores by name: {problem.detail}") from None
        return cls({name: _config(name, raw) for name, raw in by_name.items()})

    def check(self, place: StorePlace, tenant: str, *, field: str, write: bool) -> None:
        """Raises ProblemError: a store that this tenant does not have, or a prefix that leaves it."""
        config = self.by_name.get(place.store)
        if config is None or (config.tenants is not None and tenant not in config.tenants):
            known = sorted(
                name for name, c in self.by_name.items() if c.tenants is None or tenant in c.tenants
            )
            has = f"there are {', '.join(known)}" if known else "there are none"
            detail = f"There is no store {place.store!r}; {has}."
            raise ProblemError("invalid-request", detail, field=f"{field}.store")
        if write and not config.write:
            detail = f"Jobs may not write to the store {place.store!r}."
            raise ProblemError("invalid-request", detail, field=f"{field}.store")
        if not _stays_below(place.prefix):
            detail = "A prefix is relative to its store and has no `..`."
            raise ProblemError("invalid-request", detail, field=f"{field}.prefix")
        manifest = place.manifest if isinstance(place, SourcePlace) else None
        if manifest is not None and not _names_a_file(manifest):
            detail = "A manifest is the path of a file below the prefix, and has no `..`."
            raise ProblemError("invalid-request", detail, field=f"{field}.manifest")

    def open(self, place: StorePlace) -> Store:
        """The folder that a place names.  Raises JobError."""
        config = self.by_name[place.store]
        prefix = place.prefix.strip("/")
        if not config.url.startswith("s3://"):
            root = FolderStore(Path(config.url).expanduser().absolute())
            return root.within(prefix) if prefix else root
        bucket, _, base = config.url.removeprefix("s3://").partition("/")
        whole = "/".join(part for part in (base.strip("/"), prefix) if part)
        return S3Store(
            bucket,
            whole + "/" if whole else "",
            endpoint=config.endpoint,
            region=config.region,
            path_style=config.path_style,
            allow_http=config.allow_http,
            access_key=_secret(config.access_key_env),
            secret_key=_secret(config.secret_key_env),
        )


def _config(name: str, text: msgspec.Raw) -> StoreConfig:
    """Raises SettingsError."""
    try:
        return decode_json(bytes(text), StoreConfig)
    except ProblemError as problem:
        raise SettingsError(f"POINTBOX_STORES: the store {name!r}: {problem.detail}") from None


def _stays_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in PurePosixPath(path).parts and "\0" not in path


def _names_a_file(path: str) -> bool:
    return _stays_below(path) and path.strip("./") != "" and not path.endswith("/")


def _secret(variable: str | None) -> str | None:
    return None if variable is None else os.environ.get(variable)
