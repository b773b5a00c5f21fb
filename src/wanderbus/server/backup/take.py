"""Backup of a server's data directory, which may be in use: consistent, checked, and complete or absent.

The order makes it consistent: first the registrations of readers and the state, each of which needs records only from
some offset on, then the durable mark and the segments that hold every record from the oldest on. A backup whose oldest
record is beyond its state, because records were removed in between, is begun again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.files.fresh_directory import FreshDirectory, check_absent, digest_of, fresh_directory
from wanderbus.runtime.files.identity_file import FILE_NAME as IDENTITY
from wanderbus.runtime.files.identity_file import stored_identity
from wanderbus.runtime.files.restored_mark import FILE_NAME as RESTORED
from wanderbus.runtime.files.server_files import unusable
from wanderbus.runtime.files.state_copy import copy_state
from wanderbus.runtime.files.state_generations import NAMES
from wanderbus.runtime.log.log_copy import BESIDE, CopiedLog, OpenLog
from wanderbus.runtime.log_readers import reader_files
from wanderbus.runtime.services.login import NAME as LOGIN
from wanderbus.runtime.services.places import DIRECTORY as SERVICES
from wanderbus.runtime.services.places import places_of
from wanderbus.server.backup.manifest import FILE_NAME, Manifest, check_files

_ATTEMPTS: Final = 10
"""Attempts to copy a state that the kept records continue."""


def take_backup(data_dir: Path, target: Path, now_us: int) -> Manifest:
    """Copy a server's data directory to ``target``, which must be absent or empty; return what the copy has.

    The server may run. Every record is checked, and what was written is read again.

    :raises ConfigurationError: ``target`` exists, or ``data_dir`` is not the data directory of a server
    :raises StorageError: a file cannot be read, is damaged, or cannot be written; there is no ``target`` then
    """
    _check_source(data_dir)
    check_absent(target)
    if data_dir.resolve() in (target.resolve(), *target.resolve().parents):
        raise ConfigurationError(f"{target} is within {data_dir}; give a directory elsewhere")
    with fresh_directory(target) as fresh:
        for path in _small_files(data_dir):
            _copy_small(data_dir, path, fresh)
        state, log = _copy_state_and_log(data_dir, fresh)
        manifest = Manifest(
            server=_name_in(fresh.path / IDENTITY),
            first=log.first,
            next=log.next,
            state=state,
            last_us=None if log.last is None else log.last.at_us,
            last_checksum=log.last_checksum,
            taken_us=now_us,
            files=dict(fresh.digests),
        )
        check_files(fresh.path, manifest)
        fresh.write(FILE_NAME, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
    return manifest


def _check_source(data_dir: Path) -> None:
    if (data_dir / "log").is_dir():
        return
    if (data_dir / "data").is_dir():
        raise ConfigurationError(
            f"{data_dir} is the directory of a domain; back up each of its servers, --data-dir {data_dir}/data/NAME"
        )
    raise ConfigurationError(f"{data_dir} holds no event log; give the data directory of a server")


def _small_files(data_dir: Path) -> Iterator[Path]:
    """Yield what is neither log nor state: names, keys, marks, and registrations of readers of the log.

    The registrations of devices are left out: a running server locks them, and devices register again. So is the key of
    logins: who gets a backup must not become the operator of a server that runs.
    """
    yield data_dir / IDENTITY
    yield data_dir / RESTORED
    yield from sorted(data_dir.glob("*.key"))
    yield from sorted({*(data_dir / SERVICES).glob("*.key")} - {places_of(data_dir, LOGIN).key})
    yield from (data_dir / "log" / name for name in BESIDE)
    yield from reader_files(data_dir / "log")


def _copy_small(data_dir: Path, path: Path, fresh: FreshDirectory) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return  # nobody reads the log any more, or the file is made again by the next start
    except OSError as error:
        raise unusable(data_dir, error) from None
    fresh.write(path.relative_to(data_dir).as_posix(), content)


def _copy_state_and_log(data_dir: Path, fresh: FreshDirectory) -> tuple[int | None, CopiedLog]:
    copy = fresh.path / NAMES[0]
    for _ in range(_ATTEMPTS):
        state = copy_state(data_dir, copy)
        with OpenLog(data_dir / "log") as log:
            if log.first <= (state or 0):
                if state is not None:
                    fresh.digests[copy.name] = digest_of(copy)
                return state, log.copy(fresh)
        if state is None:
            raise StorageError(
                f"{data_dir} has no valid state file, and its log begins at record {log.first}, so a copy could not be "
                "used; start the server once, or restore an earlier backup"
            )
        copy.unlink()
    raise StorageError(f"the records in {data_dir} are removed faster than the state is copied; try again")


def _name_in(path: Path) -> str:
    """Return the name of the server in a copy of its identity."""
    identity = stored_identity(path) if path.exists() else None
    if identity is None:
        raise StorageError(f"the file {IDENTITY} is missing or damaged; start the server once, which restores it")
    return identity.server
