"""States of an agent and of its data channel, as tables (SPEC D-08, D-10, E-07).

An input that a table does not list for the present state changes nothing. `tools/state_diagram.py` draws both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeVar


class AgentState(Enum):
    """Relation of the agent to the broker; the data channel works in CONNECTED and LEAVING, as far as is known."""

    IDLE = "Idle"
    CALLING = "Calling"
    """The first session is offered, or was refused; a refusal is final."""
    CONNECTED = "Connected"
    DISCONNECTED = "Disconnected"
    """The session stands, and can be updated, but its data channel does not work."""
    RECALLING = "Recalling"
    """Another session is offered, or will be after a pause."""
    LEAVING = "Leaving"
    """Messages that were sent are not acknowledged yet."""
    LEFT = "Left"


class AgentTrigger(Enum):
    """Inputs of the table of the agent."""

    CONNECT = "connect"
    ANSWERED = "session answered"
    AGREED = "data channel agreed"
    LOST = "data channel lost"
    ENDED = "session ended"
    DISCONNECT = "disconnect"


class ChannelState(Enum):
    """Use of the data channel."""

    NONE = "None"
    RESTARTED = "Restarted"
    """An offer of the broker has opened it, and nothing was sent on it yet."""
    OPENED = "Opened"
    """Nothing was received on it yet."""
    IN_USE = "In_use"
    FAILED = "Failed"
    PROBED = "Probed"
    """It failed, and a response is expected."""


class ChannelTrigger(Enum):
    """Inputs of the table of the data channel."""

    OFFERED = "broker's offer"
    OPENING = "first message sent"
    MESSAGE = "message received"
    FAILURE = "sending failed"
    PROBE = "probe sent"
    RESPONSE = "probe answered"


_A, _AT, _C, _CT = AgentState, AgentTrigger, ChannelState, ChannelTrigger

AGENT: Final[Mapping[tuple[AgentState, AgentTrigger], AgentState]] = {
    (_A.IDLE, _AT.CONNECT): _A.CALLING,
    (_A.IDLE, _AT.DISCONNECT): _A.LEFT,
    (_A.CALLING, _AT.ANSWERED): _A.DISCONNECTED,
    (_A.CALLING, _AT.DISCONNECT): _A.LEFT,
    (_A.CONNECTED, _AT.LOST): _A.DISCONNECTED,
    (_A.CONNECTED, _AT.DISCONNECT): _A.LEAVING,
    (_A.DISCONNECTED, _AT.AGREED): _A.CONNECTED,
    (_A.DISCONNECTED, _AT.ENDED): _A.RECALLING,
    (_A.DISCONNECTED, _AT.DISCONNECT): _A.LEFT,
    (_A.RECALLING, _AT.ANSWERED): _A.DISCONNECTED,
    (_A.RECALLING, _AT.DISCONNECT): _A.LEFT,
    (_A.LEAVING, _AT.LOST): _A.LEFT,
    (_A.LEFT, _AT.AGREED): _A.LEAVING,
}
"""States of the agent. A session is answered before its data channel is agreed, and ends after that is lost."""

CHANNEL: Final[Mapping[tuple[ChannelState, ChannelTrigger], ChannelState]] = {
    (_C.NONE, _CT.OFFERED): _C.RESTARTED,
    (_C.NONE, _CT.OPENING): _C.OPENED,
    (_C.RESTARTED, _CT.OPENING): _C.OPENED,
    (_C.RESTARTED, _CT.FAILURE): _C.FAILED,
    (_C.OPENED, _CT.MESSAGE): _C.IN_USE,
    (_C.OPENED, _CT.OFFERED): _C.RESTARTED,
    (_C.OPENED, _CT.FAILURE): _C.FAILED,
    (_C.IN_USE, _CT.OFFERED): _C.RESTARTED,
    (_C.IN_USE, _CT.OPENING): _C.OPENED,
    (_C.IN_USE, _CT.FAILURE): _C.FAILED,
    (_C.FAILED, _CT.PROBE): _C.PROBED,
    (_C.FAILED, _CT.OFFERED): _C.RESTARTED,
    (_C.FAILED, _CT.OPENING): _C.OPENED,
    (_C.PROBED, _CT.RESPONSE): _C.FAILED,
    (_C.PROBED, _CT.OFFERED): _C.RESTARTED,
    (_C.PROBED, _CT.OPENING): _C.OPENED,
}
"""States of the data channel."""

State = TypeVar("State", AgentState, ChannelState)
Trigger = TypeVar("Trigger", AgentTrigger, ChannelTrigger)


def after(table: Mapping[tuple[State, Trigger], State], state: State, trigger: Trigger) -> State:
    """Return the state after ``trigger``: the present one if ``table`` has no such edge."""
    return table.get((state, trigger), state)
