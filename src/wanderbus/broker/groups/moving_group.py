"""Channel groups on their way to another leader: at the leader that gives one away, and at a server that prepares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from wanderbus.broker.readers import Link
from wanderbus.protocol.domains import MovingGroup

Report = Callable[[str], None]
"""Takes the reason why a group cannot move, "" if everything is prepared here."""

Stage = Literal["preparing", "pausing", "sending", "fenced"]


class GivenGroup(msgspec.Struct):
    """A group that its leader gives away; the device on ``link`` that has asked for it gets the answer."""

    moving: MovingGroup
    link: Link
    request: int
    unprepared: set[str]
    deadline: float = 0.0
    stage: Stage = "preparing"
    heads: dict[str, int] = {}
    """Number that each other server has to take."""
    parts: list[bytes] = []
    """Rows of the publishers, encoded."""
    part: int = 0
    """Number of the part that is on its way."""


class Preparation(msgspec.Struct):
    """A group for whose move a server prepares, and who waits for that."""

    report: Report
    waiting: set[str]
    """Subscriptions that do not count at the next leader yet."""
    is_published: bool = False
    """True if every event of the group is published: no agent holds any back."""
