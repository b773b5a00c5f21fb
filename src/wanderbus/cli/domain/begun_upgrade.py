"""Starts of the servers at the begin of a ``wanderbus domain upgrade`` that was interrupted (SPEC S-02)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StorageError
from wanderbus.runtime.files.disk import SYSTEM, replace_file

FILE_NAME: Final = "upgrade.json"

_starts: Final = msgspec.json.Decoder(dict[str, int])


def begun_upgrade(directory: Path, starts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the starts of the servers when the upgrade began, which is that of an interrupted command if there is one.

    :param directory: keeps them in a file until :func:`upgrade_ended`
    :param starts: the present ones; a server with another one than at the begin has been restarted
    """
    path = directory / FILE_NAME
    try:
        if path.exists():
            return _starts.decode(path.read_bytes())
        replace_file(SYSTEM, path, msgspec.json.encode(starts))
    except msgspec.DecodeError:
        raise StorageError(f"{path} is damaged; remove it to restart all servers") from None
    except OSError as error:
        raise StorageError(
            f"{path}, which lets an interrupted command go on, cannot be used: {error.strerror}; "
            "with --started-before no file is needed"
        ) from None
    return starts


def upgrade_ended(directory: Path) -> None:
    """Forget the upgrade: all servers are restarted."""
    (directory / FILE_NAME).unlink(missing_ok=True)
