"""Reports of the client of media relays, and its commands under way."""

from __future__ import annotations

import msgspec

from wanderbus.machine import Address, Output
from wanderbus.sip.proxy.anchoring import Describe, Release


class RelayLost(Output, frozen=True):
    """The relay at ``address`` does not answer, and is not used for a while."""

    address: Address


class RelayFound(Output, frozen=True):
    """The relay at ``address`` answers again."""

    address: Address


class CommandUnderWay(msgspec.Struct):
    """A command under way: its request, the relay asked now, the relays left to ask, and how often it was sent."""

    request: Describe | Release
    relay: Address
    others: list[Address]
    data: bytes
    tries: int = 1


class CallRelay(msgspec.Struct, frozen=True):
    """The relay of a call, and whether an answer has been described there."""

    relay: Address
    answered: bool
