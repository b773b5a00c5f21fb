"""Files of the services of a server, in ``services/`` of its data directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

DIRECTORY: Final = "services"

_ADDRESS_BYTES_MAX: Final = 100
"""Longest path of a Unix socket that every system takes."""


class Places(NamedTuple):
    """Paths of one service."""

    socket: Path
    key: Path
    lock: Path


def places_of(data_dir: Path, name: str) -> Places:
    """Return the paths of the service ``name`` of the server with this data directory."""
    directory = data_dir / DIRECTORY
    return Places(directory / f"{name}.sock", directory / f"{name}.key", directory / f"{name}.lock")


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Give the address of a Unix socket at ``path``, which may be longer than an address."""
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
