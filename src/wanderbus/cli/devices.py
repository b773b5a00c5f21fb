"""Device identities of commands: commands that run at the same time are different devices; later ones reuse them.

A later command therefore takes over the device of a command that was killed, and its queue does not grow for ever.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.files.file_modes import lock_file, make_private_directory


class DevicePlace(NamedTuple):
    """The directory of a device that no other command uses now."""

    directory: Path


@contextlib.contextmanager
def free_place(base: Path) -> Iterator[DevicePlace]:
    """Lock the first place below ``base`` that no command uses; :class:`StorageError` if it cannot be used."""
    for number in itertools.count(1):
        directory = base / str(number)
        if (lock := _locked(directory)) is not None:
            with _released(lock):
                yield DevicePlace(directory)
            return


@contextlib.contextmanager
def named_place(directory: Path, command: str) -> Iterator[DevicePlace]:
    """Lock the place at ``directory``; :class:`ConfigurationError` while another ``command`` uses it."""
    lock = _locked(directory)
    if lock is None:
        raise ConfigurationError(f"another {command} is running; end that one first, or give another name")
    with _released(lock):
        yield DevicePlace(directory)


def _locked(directory: Path) -> int | None:
    try:
        make_private_directory(directory)
        return lock_file(directory / "lock")
    except OSError as error:
        raise StorageError(
            f"the state directory {directory} cannot be used ({error.strerror}); give another with --state-dir"
        ) from None


@contextlib.contextmanager
def _released(lock: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(lock)
