"""Inputs and outputs of the door for lightweight clients, their first frame, and the door's part."""

from __future__ import annotations

from typing import Final, NamedTuple

from wanderbus.broker.messages import DevicesDoubted, LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.composition import Part
from wanderbus.machine import CloseStream, Output, SendOnStream, SetTimer, StreamClosed, StreamReceived, TimerFired
from wanderbus.peers.owner_messages import CallPostponed, CallRedirected, CallRefused, CallServed
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.transport import Consumed

LIGHT_SOCKET: Final = "light"
"""Socket of the connections of lightweight clients."""


class Hello(NamedTuple):
    """First frame of a client; ``body`` are its bytes, which both proofs cover."""

    window_bytes: int
    user: str
    device: str
    session: str
    former: str
    body: bytes


class LinkWanted(Output, frozen=True):
    """Decide which server serves a client of ``user`` that wants ``session``; see ``OwnerWanted``."""

    call: str
    user: str
    session: str
    former: str


LightInput = (
    StreamReceived
    | StreamClosed
    | TimerFired
    | SendOnLink
    | LinkDropped
    | LinkClosed
    | Consumed
    | DevicesDoubted
    | CallServed
    | CallRedirected
    | CallPostponed
    | CallRefused
)
"""Inputs of the door."""

LightOutput = (
    LinkOpened
    | LinkClosed
    | MessageArrived
    | LinkWanted
    | SendOnStream
    | CloseStream
    | SetTimer
    | Limited
    | LoginRefused
)
"""Outputs of the door: inputs of the broker, and outputs of the access server."""

LIGHT: Final = Part[LightInput, LightOutput]("light")
