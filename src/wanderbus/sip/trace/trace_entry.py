"""Entry of a trace: one SIP message on the wire (SPEC U-06)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from wanderbus.sip.message.targets import Transport

Direction = Literal["in", "out"]
"""Direction of a message, from the node that traced it."""


Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


Microseconds = Annotated[int, msgspec.Meta(ge=0, lt=2**32 * 1_000_000)]
"""Microseconds since the Unix epoch, within the range of the export formats."""


class TraceEntry(msgspec.Struct, frozen=True):
    """One message on the wire: time, addresses, transport, and its bytes."""

    at_us: Microseconds
    source: tuple[str, Port]
    destination: tuple[str, Port]
    transport: Transport
    direction: Direction
    data: bytes

    def __repr__(self) -> str:
        ends = f"{self.source} -> {self.destination}"
        return f"TraceEntry({self.at_us}, {ends}, {self.transport}, {self.direction}, {len(self.data)} bytes)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("entry", repr(self))]
