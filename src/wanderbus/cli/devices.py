"""Which device a command is: each that runs at the same time is another one, and the next command is one of these.

So whoever is killed leaves a device that somebody comes back as, and what waits for it does not pile up.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.runtime.files.file_locks import lock_file
from wanderbus.runtime.files.file_modes import make_private_directory


class Place(NamedTuple):
    """The directory of a device that no other command is now."""

    directory: Path


@contextlib.contextmanager
def free_place(base: Path) -> Iterator[Place]:
    """Have the first place below ``base`` that no command has; :class:`StorageError` if it cannot be used."""
    for number in itertools.count(1):
        directory = base / str(number)
        if (lock := _locked(directory)) is not None:
            with _released(lock):
                yield Place(directory)
            return


@contextlib.contextmanager
def named_place(directory: Path, command: str) -> Iterator[Place]:
    """Have the place at ``directory``; :class:`ConfigurationError` while another ``command`` has it."""
    lock = _locked(directory)
    if lock is None:
        raise ConfigurationError(f"another {command} runs here; end that one first, or give another name")
    with _released(lock):
        yield Place(directory)


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
