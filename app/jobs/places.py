"""The words for a source or a destination on the command line -> a store."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from app.jobs.errors import JobError
from app.jobs.s3 import S3Store
from app.jobs.stores import FolderStore, Store

MANIFESTS = (".jsonl", ".csv")
_JOB = re.compile(r"[\w][\w.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class S3Options:
    """How S3 servers are reached; see `S3Store`."""

    endpoint: str | None = None
    path_style: bool = False
    allow_http: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and the key of a manifest in it where the place was one."""

    store: Store
    manifest: str | None = None


def source(text: str, options: S3Options) -> Place:
    """`s3://bucket/prefix`, a folder, or a manifest (.jsonl, .csv) in either.  Raises JobError."""
    if not text.lower().endswith(MANIFESTS):
        if text and "://" not in text and not Path(text).expanduser().is_dir():
            raise JobError(f"{text} is no folder, and no .jsonl or .csv manifest")
        return Place(destination(text, options))
    parent, _, name = text.rpartition("/")
    if text.startswith("s3://") and parent == "s3:/":
        raise JobError(f"{text} names a bucket, not a manifest in one")
    if not text.startswith("s3://") and not Path(text).is_file():
        raise JobError(f"there is no manifest {text}")
    return Place(destination(parent or ("/" if text.startswith("/") else "."), options), name)


def destination(text: str, options: S3Options) -> Store:
    """`s3://bucket/prefix` or a folder.  Raises JobError."""
    if not text:
        raise JobError("the name of a folder is empty: give a folder or s3://bucket/prefix")
    scheme, mark, rest = text.partition("://")
    if not mark:
        return FolderStore(Path(text).expanduser().absolute())
    if scheme != "s3":
        raise JobError(f"{text} is neither a folder nor s3://bucket/prefix")
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise JobError(f"{text} names no bucket")
    if prefix and not prefix.endswith("/"):
        prefix += "/"
    return S3Store(
        bucket,
        prefix,
        endpoint=options.endpoint,
        path_style=options.path_style,
        allow_http=options.allow_http,
    )


def check_job(name: str) -> str:
    """The name of a job's folder, unchanged.  Raises JobError for one that would lead elsewhere."""
    if not _JOB.fullmatch(name):
        raise JobError(
            f"a job cannot be called {name!r}: use letters, digits, '.', '_' and '-', 100 at most, "
            "and a letter or digit first"
        )
    return name


def _real(url: str) -> str:
    """A folder without the links that lead to it."""
    return url if url.startswith("s3://") else os.path.realpath(url)


def check_apart(source: Store, target: Store) -> None:
    """Raises JobError for results inside the source: the next job would take them for images."""
    inner, outer = (_real(url).rstrip("/") + "/" for url in (target.url, source.url))
    if inner.startswith(outer):
        raise JobError(f"the results would lie inside the source {source.url}: choose another --out")
