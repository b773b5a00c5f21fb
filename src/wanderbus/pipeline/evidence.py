"""The evidence of a run read without Spark, for its plots (SPEC T-08); the columns are those of ``schemas``."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from wanderbus.errors import StorageError


class Taking(msgspec.Struct, frozen=True):
    """A traveller committed a row, as the ``seq``-th of its own."""

    user: str
    seq: int
    row: int
    at_us: int


class Move(msgspec.Struct, frozen=True):
    """A traveller's address changed; ``healed_us`` is None if nothing came after it."""

    user: str
    moved_us: int
    healed_us: int | None
    address: str


class Away(msgspec.Struct, frozen=True):
    """A traveller was cut off."""

    user: str
    from_us: int
    to_us: int
    why: str


Line = TypeVar("Line", Taking, Move, Away)


def read_lines(evidence_dir: Path, name: str, kind: type[Line]) -> list[Line]:
    """Return the lines of ``<name>.jsonl``; ``StorageError`` names the file and line that cannot be used."""
    path = evidence_dir / f"{name}.jsonl"
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise StorageError(f"{path} is missing: it belongs to the evidence of a run") from None
    decoder = msgspec.json.Decoder(kind)
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            raise StorageError(f"{path} line {number} cannot be used: {error}") from None
    return found
