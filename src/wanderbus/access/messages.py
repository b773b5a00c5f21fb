"""Reports of the access server to its owner, and an input of its part for the original ECI."""

from __future__ import annotations

from wanderbus.broker.messages import LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.state.state import DeviceRow
from wanderbus.machine import DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.refusals import Limited


class DevicesRestored(Input, frozen=True):
    """The broker's devices from before a restart; those of the original ECI are attached again."""

    devices: tuple[DeviceRow, ...]


class BrokerRegistered(Output, frozen=True):
    """The broker is registered: agents can call it by its URI from now on."""


class BrokerUnregistered(Output, frozen=True):
    """The broker could not register, with this SIP ``status`` (None: timeout); it keeps trying."""

    status: int | None
    reason: str


class ChannelRefused(Output, frozen=True):
    """A data channel of ``user`` was refused: it is not sufficient, is not the user's, or met ``limit``."""

    user: str
    reason: str
    limit: str | None = None


BaselineInput = DatagramReceived | TimerFired | SendOnLink | LinkDropped | DevicesRestored
"""Inputs of the original ECI."""

BaselineOutput = LinkOpened | MessageArrived | SendDatagram | SetTimer | Limited
"""Outputs of the original ECI: inputs of the broker, and outputs of the access server."""
