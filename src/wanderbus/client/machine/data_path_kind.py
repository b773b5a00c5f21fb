"""Kinds of paths that the data channel may take (SPEC F-01, I-08)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

DataTransport = Literal["AUTO", "UDP", "TCP"]
"""Transport of the data channel: reliable UDP, TCP, or the first one that works."""

DataPathKind = Literal["udp", "udp-relay", "tcp", "tcp-relay"]

DATA_PATH_KINDS: Final[tuple[DataPathKind, ...]] = ("udp", "udp-relay", "tcp", "tcp-relay")
"""All paths, the best first."""

PATH_NAMES: Final[dict[DataPathKind, str]] = {
    "udp": "UDP",
    "udp-relay": "UDP by relay",
    "tcp": "TCP",
    "tcp-relay": "TCP by relay",
}
"""Names of the paths, for people."""


class RememberedPath(msgspec.Struct, frozen=True):
    """The path that worked at an address of the device."""

    path: DataPathKind
    learnt_at: float


def allowed_paths(transport: DataTransport, paths: Sequence[DataPathKind]) -> tuple[DataPathKind, ...]:
    """Return those of ``paths`` that use ``transport``."""
    return tuple([path for path in paths if transport in ("AUTO", path.partition("-")[0].upper())])
