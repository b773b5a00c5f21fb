"""A directory that appears under its name only when everything in it is complete and durable."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.files.disk import SYSTEM, sync_directory, write_durable
from wanderbus.runtime.files.file_modes import make_private_directory

_PIECE_BYTES: Final = 2**20


class FileDigest(msgspec.Struct, frozen=True):
    """Size of a file, and the SHA-256 of its content in hexadecimal digits."""

    bytes: int
    sha256: str


class FreshDirectory:
    """A new private directory, and the digests of the files that were written into it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digests: dict[str, FileDigest] = {}
        """Digest of each file as it was written, by relative path."""

    def write(self, name: str, content: bytes) -> None:
        """Write a new file, readable by its owner only, and sync it; ``OSError`` if that fails."""
        path = self.path / name
        make_private_directory(path.parent)
        self.digests[name] = FileDigest(len(content), hashlib.sha256(content).hexdigest())
        write_durable(SYSTEM, path, content, os.O_EXCL)


@contextmanager
def fresh_directory(target: Path, aside: Path | None = None) -> Iterator[FreshDirectory]:
    """Give an empty private directory beside ``target``; after the block its content is synced, and gets that name.

    ``target`` must be absent or empty, or is moved to ``aside``. After an exception the new directory is removed, and
    ``target`` is as it was. A crash leaves the new one as ``.NAME.partial-*``.
    """
    try:
        make_private_directory(target.parent)
        fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
        try:
            yield FreshDirectory(fresh)
            for directory, _, _ in os.walk(fresh):
                sync_directory(SYSTEM, Path(directory))
            _rename(fresh, target, aside)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        sync_directory(SYSTEM, target.parent)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise StorageError(f"{target} cannot be written: {error.strerror}{where}") from None


def _rename(fresh: Path, target: Path, aside: Path | None) -> None:
    if aside is None:
        fresh.rename(target)
        return
    target.rename(aside)
    try:
        fresh.rename(target)
    except OSError:
        aside.rename(target)
        raise


def check_absent(target: Path) -> None:
    """Raise :class:`ConfigurationError` unless ``target`` is absent, or an empty directory."""
    if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
        raise ConfigurationError(f"{target} exists and is not overwritten; give another directory")


def digest_of(path: Path) -> FileDigest:
    """Return the digest of a file; ``OSError`` if it cannot be read."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
            size += len(piece)
    return FileDigest(size, digest.hexdigest())
