"""Name and ports of a server in ``server.json``; a damaged name is restored from the log."""

from __future__ import annotations

import logging
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StateCorrupt
from wanderbus.records import Started, decode_record
from wanderbus.runtime.files.disk import Disk, replace_file
from wanderbus.runtime.files.state_description import state_server
from wanderbus.runtime.log.event_log import EventLog

FILE_NAME: Final = "server.json"

_log = logging.getLogger("wanderbus.server")


class Identity(msgspec.Struct, frozen=True):
    """Identity over restarts: the name in event ids, and the ports that agents know (DESIGN 6.3)."""

    server: str
    ports: Mapping[str, int] = {}
    """Ports by the names of their settings, such as ``data_port``."""


class _Content(msgspec.Struct, frozen=True):
    """The file: an identity and its checksum, which is missing if an earlier version or an editor wrote the file."""

    server: str
    ports: Mapping[str, int] = {}
    checksum: int | None = None


def load_identity(path: Path, log: EventLog, disk: Disk, new_name: str | None = None) -> Identity:
    """Return the identity in the file at ``path``; if it is missing or damaged, restore it.

    The name is the one in the log, or in the state if the log lacks its first records. If the log is empty, it is
    ``new_name``, or a random one. The ports are new; agents find them by themselves.

    :raises StateCorrupt: the file is damaged, and neither log nor state contains the name
    """
    try:
        identity, fault = stored_identity(path), "is damaged"
    except FileNotFoundError:
        identity, fault = None, "is missing"
    if identity is not None:
        return identity
    name = (_name_in(log) or state_server(path.parent)) if log.next_offset else new_name or f"wb{secrets.token_hex(3)}"
    if name is None:
        raise StateCorrupt(
            f'{path} {fault}; write {{"server": NAME}} with the name that event ids in the log begin with'
        )
    if log.next_offset or fault == "is damaged":
        source = "state" if log.oldest_offset else "log"
        _log.warning("%s %s; restored the name %s from the %s, and the ports change", path, fault, name, source)
    identity = Identity(name)
    save_identity(path, identity, disk)
    return identity


def save_identity(path: Path, identity: Identity, disk: Disk) -> None:
    """Write an identity."""
    content = _Content(**msgspec.structs.asdict(identity), checksum=_checksum(identity))
    replace_file(disk, path, msgspec.json.encode(content) + b"\n")


def stored_identity(path: Path) -> Identity | None:
    """Return the identity in the file at ``path``, None if it is damaged; ``OSError`` if it cannot be read."""
    data = path.read_bytes()
    try:
        content = msgspec.json.decode(data, type=_Content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    identity = Identity(content.server, content.ports)
    return identity if content.checksum in (None, _checksum(identity)) else None


def _checksum(identity: Identity) -> int:
    return zlib.crc32(msgspec.json.encode(identity))


def _name_in(log: EventLog) -> str | None:
    """Return the name of the server that began the log, None if its first record was removed."""
    try:
        first = next((decode_record(frame.payload) for frame in log.read()), None)
    except msgspec.DecodeError:
        return None
    return first.server if isinstance(first, Started) else None
