"""The piece of a log that is being read, and the part of it that becomes notifications."""

from __future__ import annotations

import msgspec

from wanderbus.broker.messages import HistoryWanted, PastEvent


class AskedPiece(msgspec.Struct):
    """The piece that is being read; ``held`` are the later matches, None if the subscription cannot switch to live."""

    wanted: HistoryWanted
    held: list[PastEvent] | None
    is_sent: bool = False


class TakenEvents(msgspec.Struct):
    """Events of a piece that become notifications; ``is_history`` says for each whether it came from the log."""

    last_us: int | None
    events: list[PastEvent] = []
    is_history: list[bool] = []
    restricted: int = 0
    bytes: int = 0
