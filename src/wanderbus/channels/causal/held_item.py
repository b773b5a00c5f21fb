"""Definition of what waits for causes: an event, or a session that moved here."""

from __future__ import annotations

import msgspec

from wanderbus.channels.causal.header import CausalPast, Dot, Header

Key = Dot | int
"""Name of an item: the dot of an event, or the token of a session's past."""


class HeldItem(msgspec.Struct):
    """An event with its ``payload`` or a ``past``, and the server that has its causes."""

    key: Key
    what: Header | CausalPast
    payload: bytes
    source: int
    since: float
    causes: tuple[Dot, ...]
    missing: Dot | None = None
    """The cause that it waits for."""
    asked: tuple[Dot, float] | None = None
    """The cause that its source was asked for, and when."""
    refused: Dot | None = None
    """The cause that its source does not have."""
