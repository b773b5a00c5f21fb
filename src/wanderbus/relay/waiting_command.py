"""A command of a proxy that waits for ports."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from wanderbus.machine import Address
from wanderbus.relay.ng import Command, Fields
from wanderbus.relay.stream import Side


class WaitingCommand(msgspec.Struct):
    """A command that waits until all of its ports are open."""

    command: Command
    source: Address
    sides: list[Side]
    tries: int
    reply: Callable[[], Fields]
