"""Where images come from and results go: an S3 bucket, or a local folder with the same interface."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, TypeAlias

from app.jobs.beneath import reached
from app.jobs.errors import JobError, NoSuchKey
from app.jobs.names import inside

Identity: TypeAlias = tuple[int, int]
"""Device and inode of a folder."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An object in a store. `etag` changes with its content; `size` is in bytes."""

    key: str
    etag: str
    size: int


class Store(Protocol):
    """Every method may be called from any thread.

    They raise StoreAway where trying again may help, JobError where it does not. Keys come from outside, from
    manifests for instance: one that leads out of the store is a NoSuchKey like any other.
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
    """Keys are paths relative to a folder, with forward slashes. Links to files and folders are followed.

    Args:
        root: the folder.
        confines: a folder around it that no link leads out of; None: links may lead anywhere, as is right
            for a user's own files.
    """

    def __init__(self, root: Path, confines: Path | None = None) -> None:
        self._root, self._confines = root, confines
        self._flags = os.O_NONBLOCK  # a pipe opens at once, though nobody writes into it
        if confines is not None:
            self._flags |= os.O_NOFOLLOW
        self.url = str(root)

    def within(self, name: str) -> Store:
        return FolderStore(self._root / name, self._confines)

    def list(self) -> Iterator[Entry]:
        """Files of a folder before its folders. A link that leads out is listed: reading it says so."""
        above = frozenset(filter(None, map(_identity, self._root.absolute().parents)))
        left = [("", above)]
        while left:
            folder, above = left.pop()
            names, here = self._names(folder)
            folders = []
            for name, is_folder in names:
                path = f"{folder}{name}"
                status = None if is_folder else self._status(path)
                if is_folder or (status is not None and stat.S_ISDIR(status.st_mode)):
                    if status is None or _same(status) not in above | here:  # no link back to a folder above
                        folders.append((f"{path}/", above | here))
                elif status is None:
                    yield Entry(_key(path), "", 0)
                else:
                    yield Entry(_key(path), _etag(status), status.st_size)
            left += reversed(folders)

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
            with (
                self._reached(_checked(key)) as (at, name),
                open(name, "rb", opener=lambda path, flags: self._open(path, flags, at)) as file,
            ):
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
            with self._reached(_checked(key)) as (at, name):
                return os.stat(name, dir_fd=at, follow_symlinks=self._confines is None).st_size
        except OSError as error:
            raise NoSuchKey(error.strerror or str(error)) from error

    def put(self, key: str, data: bytes | Path) -> None:
        """It is on the disk when this returns: after a power cut, no file is empty that was not."""
        try:
            with self._reached(_checked(key), make=True, replace=True) as (at, name):
                folder, _, last = name.rpartition("/")
                fresh = os.path.join(folder, f".{last}.{os.getpid()}.part")
                try:
                    with open(fresh, "wb", opener=lambda path, flags: self._open(path, flags, at)) as file:
                        file.write(data if isinstance(data, bytes) else data.read_bytes())
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(fresh, name, src_dir_fd=at, dst_dir_fd=at)
                except OSError:
                    with suppress(OSError):
                        os.unlink(fresh, dir_fd=at)
                    raise
        except OSError as error:
            raise JobError(f"{self._root / key} cannot be written: {error.strerror or error}") from error

    @contextmanager
    def _reached(
        self, path: str, *, make: bool = False, replace: bool = False
    ) -> Iterator[tuple[int | None, str]]:
        """The descriptor of a folder, None for any, and what the path is from there.  Raises OSError."""
        if self._confines is None:
            whole = self._root / path
            if make:
                whole.parent.mkdir(parents=True, exist_ok=True)
            yield None, str(whole)
            return
        below = (self._root / path).relative_to(self._confines)
        with reached(self._confines, str(below), make=make, replace=replace) as place:
            yield place

    def _open(self, path: str, flags: int, at: int | None) -> int:
        return os.open(path, flags | self._flags, 0o666, dir_fd=at)

    def _status(self, path: str) -> os.stat_result | None:
        """None for what cannot be reached, such as a link that leads nowhere, or out."""
        try:
            with self._reached(path) as (at, name):
                return os.stat(name, dir_fd=at, follow_symlinks=self._confines is None)
        except OSError:
            return None

    def _names(self, folder: str) -> tuple[list[tuple[str, bool]], frozenset[Identity]]:
        """Names in a folder, each with whether it is a folder and no link; and which folder this is.

        Raises JobError.
        """
        try:
            with self._reached(folder) as (at, name):
                opened = self._open(name, os.O_RDONLY | os.O_DIRECTORY, at)
                try:
                    with os.scandir(opened) as entries:
                        found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
                    return found, frozenset([_same(os.fstat(opened))])
                finally:
                    os.close(opened)
        except FileNotFoundError:
            return [], frozenset()
        except OSError as error:
            whole = self._root / folder
            raise JobError(f"{whole} cannot be listed: {error.strerror or error}") from error


def _checked(key: str) -> str:
    """Raises NoSuchKey for one that is no path below a folder."""
    inside(key)
    if key.startswith("/") or ".." in PurePosixPath(key).parts:
        raise NoSuchKey("the name leads out of its store")
    return key


def _key(path: str) -> str:
    """A name that is not UTF-8 is shown with replacement characters, and cannot be read by it."""
    return os.fsencode(path).decode("utf-8", "replace")


def _identity(folder: Path) -> Identity | None:
    try:
        return _same(folder.stat())
    except OSError:  # who may not look there follows no link there
        return None


def _same(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _etag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"
