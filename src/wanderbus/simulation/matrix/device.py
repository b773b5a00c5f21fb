"""Device of the mobility matrix: its agent may take one path only, and its user may switch to another device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import AgentProperties, AgentStatusChanged, AskBroker, DataPathKind, Moved
from wanderbus.machine import Address, Output
from wanderbus.simulation.fleet import address_of
from wanderbus.simulation.nat.scenario import NATTraveller

_FIRST_REQUEST = 100
"""Number of the first request that is no subscription."""


class MatrixDevice(NATTraveller):
    """A user's device, which calls at the proxy of the server ``home``."""

    def __init__(self, *arguments: Any, home: str, way: DataPathKind, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.home = home
        self._way = way
        self._requests_sent = _FIRST_REQUEST
        self.interruptions = 0
        """Number of times that the agent has become DISCONNECTED."""

    @property
    def unanswered(self) -> int:
        """Return the number of events that the broker has not acknowledged."""
        return len(self._unsettled)

    @property
    def consumed(self) -> int:
        """Return the number of items that the application has committed."""
        return sum(map(len, self.committed.items.values()))

    def refresh(self) -> None:
        """Begin SIP transactions: register again, and update the session with the addresses that it has."""
        sip, data = self._addresses().values()
        self.feed(Moved(sip, data))

    def ask(self, request: protocol.OperatorRequest) -> None:
        """Send a request to the broker."""
        self._requests_sent += 1
        self.feed(AskBroker(msgspec.structs.replace(request, request=self._requests_sent)))

    def replace(self) -> None:
        """Be another device of the user from the next start on, at another address."""
        self._device = self._random.token(16).hex()
        self._moves += 1

    def rebind_nat(self) -> None:
        """Let the NAT forget all mappings, also those of TCP connections."""
        assert self.nat is not None
        self.nat.restart()
        self.node.lose_mappings()

    def _properties(self) -> AgentProperties:
        server = address_of(self.home, self.transport)
        return msgspec.structs.replace(super()._properties(), server=server, data_paths=(self._way,))

    def _report(self, output: Output) -> None:
        self.interruptions += isinstance(output, AgentStatusChanged) and output.status == "DISCONNECTED"
        super()._report(output)

    def _stream_addresses(self, addresses: Mapping[str, Address]) -> dict[str, Address]:
        """Behind a NAT it opens connections from the public address, and accepts none."""
        streams = super()._stream_addresses(addresses)
        return streams if self.nat is None else dict.fromkeys(streams, (self.ip, 0))
