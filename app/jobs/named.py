"""The stores that callers may name: the operator's configuration, never the caller's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from app.jobs.errors import JobError, NoSuchKey
from app.jobs.names import inside
from app.jobs.s3 import S3Store
from app.jobs.schemas import SourcePlace, StoreInfo, StorePlace
from app.jobs.stores import FolderStore, Store
from app.problems import ProblemError
from app.settings import SettingsError
from app.strict_json import decode_json

_WEB_ADDRESS = re.compile(r"""https?://[^\s"'(),]+""")


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
    """By name, as POINTBOX_STORES says.

    roots: each store whole.
    """

    by_name: dict[str, StoreConfig]
    roots: dict[str, Store]

    @classmethod
    def read(cls, text: str) -> Stores:
        """JSON, or the path of a file that holds it; empty: there are none.  Raises SettingsError."""
        if not text.strip():
            return cls({}, {})
        try:
            data = text.encode() if text.lstrip().startswith("{") else Path(text).read_bytes()
            by_name = decode_json(data, dict[str, msgspec.Raw])
        except OSError as error:
            raise SettingsError(f"POINTBOX_STORES: {text} cannot be read: {error.strerror}") from None
        except ProblemError as problem:
            raise SettingsError(f"POINTBOX_STORES must be JSON, stores by name: {problem.detail}") from None
        configs = {name: _config(name, raw) for name, raw in by_name.items()}
        return cls(configs, {name: _root(name, config) for name, config in configs.items()})

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
        if not _stays_below(place.prefix):
            detail = "A prefix is relative to its store and has no `..`."
            raise ProblemError("invalid-request", detail, field=f"{field}.prefix")
        manifest = place.manifest if isinstance(place, SourcePlace) else None
        if manifest is not None and not _names_a_file(manifest):
            detail = "A manifest is the path of a file below the prefix, and has no `..`."
            raise ProblemError("invalid-request", detail, field=f"{field}.manifest")

    def listed(self, tenant: str) -> list[StoreInfo]:
        """Those that this tenant may name."""
        return [
            StoreInfo(name=name, write=config.write)
            for name, config in sorted(self.by_name.items())
            if config.tenants is None or tenant in config.tenants
        ]

    def in_names(self, text: str) -> str:
        """A message in which stores go by their names: callers are not told the places of the server."""
        text = _WEB_ADDRESS.sub(lambda found: self._server(found[0]), text)
        places = {root.url.rstrip("/"): name for name, root in self.roots.items()}
        for name, config in self.by_name.items():
            bucket = config.url.removeprefix("s3://").partition("/")[0]
            places[f"bucket {bucket!r}"] = f"bucket of {name}"
        for place, name in sorted(places.items(), key=lambda item: -len(item[0])):
            if place:  # the whole file system has no name
                pattern = rf"(?<![\w/.-]){re.escape(place)}(?![\w-])"
                text = re.sub(pattern, lambda _, name=name: name, text)
        return text

    def _server(self, address: str) -> str:
        """Of one store, where it is known to be."""
        of = [
            name
            for name, config in self.by_name.items()
            if config.endpoint and f"{address}/".startswith(f"{config.endpoint.rstrip('/')}/")
        ]
        return f"the server of {of[0]}" if len(of) == 1 else "the server"

    def open(self, place: StorePlace) -> Store:
        """The folder that a place names."""
        root, prefix = self.roots[place.store], place.prefix.strip("/")
        return root.within(prefix) if prefix else root


def _root(name: str, config: StoreConfig) -> Store:
    """Raises SettingsError."""
    scheme, mark, rest = config.url.partition("://")
    if not mark:
        folder = Path(config.url).expanduser().absolute()
        return FolderStore(folder, confines=folder)
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise SettingsError(
            f"POINTBOX_STORES: the store {name!r}: {config.url} is neither a folder nor s3://bucket/prefix"
        )
    try:
        return S3Store(
            bucket,
            prefix.strip("/") + "/" if prefix.strip("/") else "",
            endpoint=config.endpoint,
            region=config.region,
            path_style=config.path_style,
            allow_http=config.allow_http,
            access_key=_secret(name, config.access_key_env),
            secret_key=_secret(name, config.secret_key_env),
        )
    except JobError as error:
        raise SettingsError(f"POINTBOX_STORES: the store {name!r}: {error}") from error


def _config(name: str, text: msgspec.Raw) -> StoreConfig:
    """Raises SettingsError."""
    try:
        return decode_json(bytes(text), StoreConfig)
    except ProblemError as problem:
        raise SettingsError(f"POINTBOX_STORES: the store {name!r}: {problem.detail}") from None


def _stays_below(path: str) -> bool:
    try:
        return not path or (not inside(path).startswith("/") and ".." not in PurePosixPath(path).parts)
    except NoSuchKey:
        return False


def _names_a_file(path: str) -> bool:
    return _stays_below(path) and path.strip("./") != "" and not path.endswith("/")


def _secret(name: str, variable: str | None) -> str | None:
    """Raises SettingsError: without it, somebody else's keys would be taken."""
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise SettingsError(
            f"POINTBOX_STORES: the store {name!r}: the environment variable {variable} is not set"
        )
    return os.environ[variable]
