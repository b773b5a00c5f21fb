"""Channel groups on their way to another leader: at the leader that gives one away, and at a server that prepares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from wanderbus.broker.readers import Link
from wanderbus.broker.state.rows import device_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.protocol.domains import MovingGroup

Report = Callable[[str], None]
"""Takes the reason why a group cannot move, "" if everything is prepared here."""

Stage = Literal["reaching", "preparing", "pausing", "sending", "fenced"]

_SESSION: Final = "default"
_DEVICE: Final = "server"


class GivenGroup(msgspec.Struct):
    """A group that its leader gives away; the device on ``link`` that has asked for it gets the answer."""

    moving: MovingGroup
    link: Link
    request: int
    unprepared: set[str]
    deadline: float = 0.0
    stage: Stage = "reaching"
    offset: int = 0
    """End of the log at the begin of the pause."""
    paused_us: int | None = None
    """Time of the begin of the pause."""
    heads: dict[str, int] = {}
    """Number that each other server has to take, once the matching engine has named what it wants below the offset."""
    publishers: int = 0
    parts: list[bytes] = []
    """Rows of the publishers, encoded."""
    part: int = 0
    """Number of the part that is on its way."""


class Preparation(msgspec.Struct):
    """A group for whose move a server prepares, and who waits for that."""

    report: Report
    waiting: set[str]
    """Subscriptions that do not count at the next leader yet."""
    offset: int = 0
    """End of the log below which the matching engine has to match every event before."""
    deadline: float = 0.0
    """Monotonic second at which the engine is too late."""
    heads: dict[str, int] | None = None
    """Number that other servers have to take before, by their user; None until the engine has come so far."""
    is_published: bool = False
    """True if every event of the group is published: no agent holds any back."""


def head_for(state: BrokerState, user: str) -> int:
    """Return the last number in the session here of another server, 0 if it has taken everything."""
    session = state.sessions.get(session_key(user, _SESSION))
    return 0 if session is None or not session.waiting else session.next - 1


def taken_by(state: BrokerState, user: str) -> int:
    """Return the last number that another server has taken in its session here."""
    device = state.devices.get(device_key(user, _DEVICE))
    return 0 if device is None else device.taken
