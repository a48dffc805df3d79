"""The stores that callers may name: the operator's configuration, never the caller's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from app.jobs.s3 import S3Store
from app.jobs.schemas import StoreInfo, StorePlace
from app.jobs.stores import FolderStore, Store
from app.problems import ProblemError
from app.settings import SettingsError


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

    @property
    def root(self) -> str:
        """The URL without a slash at its end; of a folder, its absolute path."""
        in_bucket = self.url.startswith("s3://")
        return self.url.rstrip("/") if in_bucket else str(Path(self.url).expanduser().absolute())


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
            data = text if text.lstrip().startswith("{") else Path(text).read_text(encoding="utf-8")
            return cls(msgspec.json.decode(data, type=dict[str, StoreConfig]))
        except OSError as error:
            raise SettingsError(f"stores: {text} cannot be read: {error.strerror}") from None
        except msgspec.DecodeError as error:
            raise SettingsError(f"stores must be a JSON object of stores by name: {error}") from None

    def check(self, place: StorePlace, tenant: str, *, field: str, write: bool) -> None:
        """Raises ProblemError: a store that this tenant does not have, or a prefix that leaves it."""
        config = self.by_name.get(place.store)
        if config is None or (config.tenants is not None and tenant not in config.tenants):
            known = [store.name for store in self.listed(tenant)]
            has = f"there are {', '.join(known)}" if known else "there are none"
            detail = f"There is no store {place.store!r}; {has}."
            raise ProblemError("invalid-request", detail, field=f"{field}.store")
        if write and not config.write:
            detail = f"Jobs may not write to the store {place.store!r}."
            raise ProblemError("invalid-request", detail, field=f"{field}.store")
        if ".." in PurePosixPath(place.prefix).parts or place.prefix.startswith("/"):
            detail = "A prefix is relative to its store and has no `..`."
            raise ProblemError("invalid-request", detail, field=f"{field}.prefix")

    def listed(self, tenant: str) -> list[StoreInfo]:
        """Those that this tenant may name."""
        return [
            StoreInfo(name=name, write=config.write)
            for name, config in sorted(self.by_name.items())
            if config.tenants is None or tenant in config.tenants
        ]

    def in_names(self, text: str) -> str:
        """A message in which stores go by their names: callers are not told the places of the server."""
        places = {config.root: name for name, config in self.by_name.items()}
        servers = {c.endpoint: f"the server of {name}" for name, c in self.by_name.items() if c.endpoint}
        for place, name in sorted((places | servers).items(), key=lambda item: -len(item[0])):
            text = re.sub(rf"{re.escape(place)}(?![\w-])", lambda _, name=name: name, text)
        return text

    def open(self, place: StorePlace) -> Store:
        """The folder that a place names.  Raises JobError."""
        config = self.by_name[place.store]
        prefix = place.prefix.strip("/")
        if not config.url.startswith("s3://"):
            root = FolderStore(Path(config.root))
            return root.within(prefix) if prefix else root
        bucket, _, base = config.root.removeprefix("s3://").partition("/")
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


def _secret(variable: str | None) -> str | None:
    return None if variable is None else os.environ.get(variable)
