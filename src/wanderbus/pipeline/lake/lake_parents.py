"""Parents of subjects that held for the events of a lake, in a file within it (SPEC J-13)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import StorageError
from wanderbus.pipeline.durable_files import write_durably

FILE: Final = "_parents.json"
"""Name of the file; Spark passes over names that begin with an underscore."""


def store_parents(lake: Path, parents: Mapping[str, str]) -> None:
    """Store the parent of each child; the file is there whole or not at all."""
    write_durably(lake / FILE, msgspec.json.format(msgspec.json.encode(dict(sorted(parents.items())))))


def parents_in(lake: Path) -> Mapping[str, str]:
    """Return the parent of each child; none for a lake of servers without a domain."""
    path = lake / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        raise StorageError(f"{path} is damaged; 'wanderbus pipeline run --event-domain' writes it") from None
