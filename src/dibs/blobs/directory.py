"""Blobs as files in a directory that every machine of the app can reach, such as a local disk or NFS."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dibs.blobs.base import LONGEST_KEY, BlobInfo, Blobs, check_blob, check_keys, check_page, probe
from dibs.core.options import brief, shown
from dibs.errors import BlobLost, BlobStoreUnavailable, InvalidOption

__all__ = ["ABANDONED", "INCOMING", "DirectoryBlobs"]

INCOMING = ".incoming"
"""Files that are being written. Without this directory, the path may be a mount point with nothing mounted."""

ABANDONED = 24 * 3600
"""Seconds after which a file in `INCOMING` was left by a writer that died."""

TRIES = 100

KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
"""No part begins with a dot, so a key can neither lead out of the directory nor to what is not a blob."""


def is_key(key: object) -> bool:
    """Whether this is a valid key."""
    return isinstance(key, str) and len(key) <= LONGEST_KEY and KEY.fullmatch(key) is not None


class DirectoryBlobs:
    """One file for each blob, readable by its owner only, written as a whole or not at all."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._incoming = self._root / INCOMING

    def __str__(self) -> str:
        return self._root.as_uri()

    def put(self, key: str, data: bytes) -> None:
        if not is_key(key):
            raise InvalidOption(f"a blob can't be called {shown(key)}: letters, digits and _ . - between slashes only.")
        kept = check_blob(key, data)
        target = self._root / key
        with self._errors("write to"):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._incoming.mkdir(mode=0o700, exist_ok=True)
            part = self._incoming / secrets.token_hex(16)
            try:
                write_durably(part, kept)
                self._move(part, target)
            finally:
                part.unlink(missing_ok=True)

    def _move(self, part: Path, target: Path) -> None:
        """Move a file to its place, so that it is still there after a power failure."""
        above = [self._root / each for each in target.relative_to(self._root).parents]
        for tries_left in reversed(range(TRIES)):
            try:
                for directory in reversed(above):
                    with suppress(FileExistsError):
                        directory.mkdir(mode=0o700)
                part.rename(target)
                break
            except FileNotFoundError:  # deleting another blob has removed the empty directory
                if not tries_left:
                    raise
        for directory in above:
            sync_directory(directory)

    def get(self, key: str) -> bytes:
        with self._errors("read"):
            if not is_key(key):
                raise BlobLost(f"no blob can be called {shown(key)}.")
            try:
                return (self._root / key).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                if not self._incoming.is_dir():
                    raise BlobStoreUnavailable(
                        f"{self._root} is not there, or no blob store (any more): is it mounted?"
                    ) from None
                raise BlobLost(f"the blob {brief(key, 200)} is not in {self._root}.") from None

    def delete(self, keys: Sequence[str]) -> None:
        wanted = check_keys(keys)
        with self._errors("delete from"):
            for file in (self._root / key for key in wanted if is_key(key)):
                with suppress(FileNotFoundError, NotADirectoryError):
                    file.unlink()
                for directory in file.relative_to(self._root).parents[:-1]:
                    with suppress(OSError):  # it has other blobs
                        (self._root / directory).rmdir()

    def list(self, after: str = "", limit: int = 1000) -> Blobs:
        check_page(after, limit)
        with self._errors("list"):
            if not after:
                self._tidy()
            found: list[BlobInfo] = []
            for key, file in files(self._root, "", after):
                with suppress(FileNotFoundError):  # deleted since it was listed
                    facts = file.stat()
                    found.append(BlobInfo(key, facts.st_mtime_ns // 1000, facts.st_size))
                if len(found) == limit:
                    break
            return found

    def _tidy(self) -> None:
        """Delete what writers that died have left."""
        if not self._incoming.is_dir():
            return
        for part in self._incoming.iterdir():
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < time.time() - ABANDONED:
                    part.unlink()

    def check(self) -> str:
        probe(self)
        free = shutil.disk_usage(self._root).free
        return f"{self._root}, readable and writable, {free / 1e9:,.1f} GB free"

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BlobStoreUnavailable(
                f"can't {doing} the blob directory {self._root}: {error.strerror or error}. "
                "It must be readable and writable by the user that runs Dibs, and have free space."
            ) from error


def files(directory: Path, prefix: str, after: str) -> Iterator[tuple[str, Path]]:
    """Every file below a directory with its key, in the order of the keys, after the key `after`."""
    try:
        entries = list(os.scandir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    # With its slash a directory sorts as the keys inside it do: "a-b" comes before "a/b".
    named = sorted((f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}", entry) for entry in entries)
    for key, entry in named:
        if entry.name.startswith("."):
            continue
        if not key.endswith("/"):
            if key > after:
                yield key, Path(entry.path)
        elif key > after or after.startswith(key):
            yield from files(Path(entry.path), key, after)


def write_durably(file: Path, data: bytes) -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as output:
        output.write(data)
        output.flush()
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
