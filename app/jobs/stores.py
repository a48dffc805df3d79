"""Where images come from and results go: a bucket, or a folder with the same manners."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from app.jobs.errors import JobError, NoSuchKey


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a store. `etag` changes with its content; `size` is in bytes."""

    key: str
    etag: str
    size: int


class Store(Protocol):
    """Every method may be called from any thread.

    They raise StoreAway where trying again may help, JobError where it does not.
    """

    url: str

    def within(self, name: str) -> Store:
        """The folder of this name, with keys that begin after it."""
        ...

    def list(self) -> Iterator[Entry]:
        """Every object, in one fixed order; folder markers are left out, and of nothing there is nothing."""
        ...

    def get(self, key: str) -> tuple[bytes, str]:
        """Content and etag.  Raises NoSuchKey."""
        ...

    def read(self, key: str, start: int, size: int) -> bytes:
        """A piece of the content, shorter where that ends.  Raises NoSuchKey."""
        ...

    def size(self, key: str) -> int:
        """Of its content, in bytes.  Raises NoSuchKey."""
        ...

    def put(self, key: str, data: bytes | Path) -> None:
        """Write an object, whole or not at all; what was there is replaced."""
        ...


class FolderStore:
    """Keys are paths relative to a folder, with forward slashes. Links to files and folders are followed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = str(root)

    def within(self, name: str) -> Store:
        return FolderStore(self._root / name)

    def list(self) -> Iterator[Entry]:
        for folder, folders, files in os.walk(self._root, onerror=self._unlisted, followlinks=True):
            folders[:] = sorted(name for name in folders if not _leads_back(Path(folder, name)))
            for name in sorted(files):
                path = Path(folder, name)
                try:
                    status = path.stat()
                except OSError:  # a dangling link: reading it says so, under its own name
                    yield Entry(self._key(path), "", 0)
                    continue
                yield Entry(self._key(path), _etag(status), status.st_size)

    def get(self, key: str) -> tuple[bytes, str]:
        with self._opened(key) as file:
            return file.read(), _etag(os.fstat(file.fileno()))

    def read(self, key: str, start: int, size: int) -> bytes:
        with self._opened(key) as file:
            file.seek(start)
            return file.read(size)

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        """For reading.  Raises NoSuchKey."""
        try:
            with open(self._path(key), "rb", opener=_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise NoSuchKey("not a regular file")
                yield file
        except FileNotFoundError as error:
            unnamed = "; names that are not UTF-8 cannot be read" if "\ufffd" in key else ""
            raise NoSuchKey(f"{error.strerror}{unnamed}") from error
        except OSError as error:
            raise NoSuchKey(error.strerror or str(error)) from error

    def size(self, key: str) -> int:
        try:
            return self._path(key).stat().st_size
        except OSError as error:
            raise NoSuchKey(error.strerror or str(error)) from error

    def put(self, key: str, data: bytes | Path) -> None:
        path = self._path(key)
        fresh = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_bytes(data if isinstance(data, bytes) else data.read_bytes())
            fresh.replace(path)
        except OSError as error:
            with suppress(OSError):
                fresh.unlink()
            raise JobError(f"{path} cannot be written: {error.strerror or error}") from error

    def _unlisted(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise JobError(f"{error.filename} cannot be listed: {error.strerror or error}") from error

    def _key(self, path: Path) -> str:
        """A name that is not UTF-8 is shown with replacement characters, and cannot be read by it."""
        return os.fsencode(path.relative_to(self._root).as_posix()).decode("utf-8", "replace")

    def _path(self, key: str) -> Path:
        if ".." in PurePosixPath(key).parts:
            raise NoSuchKey("a path may not leave its folder")
        return self._root / key


def _without_waiting(path: str, flags: int) -> int:
    """A pipe opens at once, though nobody writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _leads_back(folder: Path) -> bool:
    """Whether a link has led to a folder that this one lies in, whose content is listed already."""
    try:
        return any(folder.samefile(above) for above in folder.parents)
    except OSError:  # it is gone: listing it says so
        return False


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"
