"""Description of a backup in ``backup.json``: the files with their digests, and the records of the log that it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StorageError
from wanderbus.runtime.files.fresh_directory import FileDigest, digest_of

FILE_NAME: Final = "backup.json"

FORMAT: Final = 1
"""Version of the description."""


class Manifest(msgspec.Struct, frozen=True):
    """Content of ``backup.json``.

    :param server: name of the server in the ids of its events
    :param first: offset of the oldest record
    :param next: offset behind the last record; everything that was acknowledged before the backup began is below
    :param state: records below this are reflected by the state; None if the state is rebuilt from the log
    :param last_us: time of the last record, in microseconds since the Unix epoch; None without records
    :param last_checksum: checksum of the last record, which recognises the history; None without records
    :param taken_us: time at which the backup began
    :param files: the files of the data directory by relative path, without this one
    """

    server: str
    first: int
    next: int
    state: int | None
    last_us: int | None
    last_checksum: int | None
    taken_us: int
    files: Mapping[str, FileDigest]
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(each.bytes for each in self.files.values())


class _Version(msgspec.Struct, frozen=True):
    """The field that every version of the description has."""

    format: int


def read_manifest(backup: Path) -> Manifest:
    """Return the description of a backup; :class:`StorageError` if ``backup`` is none that this version reads."""
    path = backup / FILE_NAME
    try:
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Version).format
        if version != FORMAT:
            raise StorageError(
                f"{path} has format {version}, this version reads {FORMAT}; use the version that wrote it"
            )
        found = msgspec.json.decode(content, type=Manifest)
    except FileNotFoundError:
        raise StorageError(
            f"{backup} is not a backup: it has no {FILE_NAME}; give what 'wanderbus backup' wrote"
        ) from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}; use another backup") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} is damaged ({error}); use another backup") from None
    for name in found.files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise StorageError(f"{path} names a file outside of the backup: {name}; use another backup")
    return found


def check_files(directory: Path, manifest: Manifest) -> None:
    """Read every file below ``directory`` again; :class:`StorageError` names the first that is missing or changed."""
    for name, digest in manifest.files.items():
        path = directory / name
        try:
            found = digest_of(path)
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}; use another backup") from None
        if found != digest:
            raise StorageError(f"{path} is not what the backup wrote; use another backup")
