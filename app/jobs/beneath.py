"""Opening files below a folder so that no link leads out of it, not even one that is put there meanwhile.

The names of a path are opened one after the other, each relative to the descriptor of the folder before it
and never through a link: links are read and followed here. What lies outside is never touched, so no error
tells what is there.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

MAX_LINKS = 40
"""In one path, as Linux has it."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class LeadsOut(OSError):
    """The path leads out of the folder; whether there is something is not said."""

    def __init__(self) -> None:
        super().__init__(errno.EXDEV, "the name leads out of its store")


@contextmanager
def reached(root: Path, path: str, *, make: bool = False, replace: bool = False) -> Iterator[tuple[int, str]]:
    """The folder that the end of a path lies in, as a descriptor for the block, and its name there.

    The name is no link when it is looked at; open it with O_NOFOLLOW.

    Args:
        root: an absolute folder; what leads to it is the operator's and may be links.
        make: folders that are missing are made.
        replace: the last name is meant itself, also if it is a link.

    Raises:
        OSError: LeadsOut among them.
    """
    if make:
        root.mkdir(parents=True, exist_ok=True)
    walk = _Walk(root, make)
    try:
        yield walk.to(path, replace)
    finally:
        walk.close()


class _Walk:
    """Descriptors of the folders from the root to where the walk is."""

    def __init__(self, root: Path, make: bool) -> None:
        self._root, self._make, self._links = root, make, 0
        self._folders = [os.open(root, _FOLDER)]

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def to(self, path: str, replace: bool) -> tuple[int, str]:
        parts = deque(path.split("/"))
        while parts:
            part = parts.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                self._up()
                continue
            target = None if replace and not parts else self._link(part)
            if target is not None:
                parts.extendleft(reversed(self._followed(target)))
            elif any(part not in ("", ".") for part in parts):
                self._down(part)
            else:
                return self._folders[-1], part
        return self._folders[-1], "."

    def _up(self) -> None:
        if len(self._folders) == 1:
            raise LeadsOut
        os.close(self._folders.pop())

    def _down(self, name: str) -> None:
        here = self._folders[-1]
        if self._make:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
        self._folders.append(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=here))

    def _link(self, name: str) -> str | None:
        """Where a link leads; None for what is no link, or is not there yet."""
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno == errno.EINVAL or (error.errno == errno.ENOENT and self._make):
                return None
            raise

    def _followed(self, target: str) -> list[str]:
        """The parts of a link's target; an absolute one is followed from the root."""
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not target.startswith("/"):
            return target.split("/")
        for root in (self._root, Path(os.path.realpath(self._root))):
            if PurePosixPath(target).is_relative_to(root):
                while len(self._folders) > 1:
                    self._up()
                return list(PurePosixPath(target).relative_to(root).parts)
        raise LeadsOut
