"""Secrets that a server keeps over restarts, one in each file, with a checksum."""

from __future__ import annotations

import secrets
import zlib
from pathlib import Path
from typing import Final

from wanderbus.errors import StateCorrupt
from wanderbus.runtime.files.disk import SYSTEM, Disk, replace_file

_KEY_BYTES: Final = 32


def kept_key(path: Path, disk: Disk = SYSTEM) -> bytes:
    """Return the secret in the file at ``path``; create it if it is missing.

    Raises :class:`StateCorrupt` if it is damaged, ``OSError`` if it can be neither read nor created.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        key = secrets.token_bytes(_KEY_BYTES)
        content = key + _checksum(key)
        replace_file(disk, path, content)
    key, checksum = content[:_KEY_BYTES], content[_KEY_BYTES:]
    # Earlier versions wrote the key alone.
    if len(key) != _KEY_BYTES or checksum not in (b"", _checksum(key)):
        raise StateCorrupt(f"{path} is damaged; delete it; the next start creates another")
    return key


def _checksum(key: bytes) -> bytes:
    return zlib.crc32(key).to_bytes(4, "big")
