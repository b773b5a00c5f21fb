"""Simulated server of a domain whose sessions move to other servers (SPEC L)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from wanderbus import protocol
from wanderbus.broker.messages import DialogChanged
from wanderbus.broker.sessions.handover_messages import DeviceLocated
from wanderbus.broker.state.rows import decentralised_key, device_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.parts import HANDOVERS
from wanderbus.server_networks import ServerNetworks
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.handover.moving_sessions import MovesSessions

OPERATOR: Final = f"sip:operator@{DOMAIN}"
"""User with the role of administrator."""


def network_near(server: str) -> str:
    """Return the network of a server whose name is a letter and a number."""
    return f"10.0.{server[1:]}.0/24"


class HandoverNode(MovesSessions):
    """A server of a single domain; devices may be near to another one, and servers drain."""

    clock_ahead_s = 0.0
    """Seconds by which the wall clock is ahead, which the scenario sets."""

    @property
    def wall_us(self) -> int:
        return super().wall_us + round(self.clock_ahead_s * 1e6)

    def _make_handovers(self, state: BrokerState) -> SessionHandovers:
        networks = ServerNetworks({name: [network_near(name)] for name in (self.name, *self.others)})
        return SessionHandovers(self.others, self.others, state, DOMAIN, networks, self.piece_bytes)

    def locate(self, user: str, device: str, near: str) -> None:
        """Let a device be near to a server of this name."""
        host = f"{network_near(near).removesuffix('0/24')}7"
        self.feed(DialogChanged(user, device, f"{host}:4000", b"dialog"))
        self._feed_part(HANDOVERS, [DeviceLocated(user, device, host)])

    def drain(self, *, on: bool) -> None:
        """Begin or end a drain, if the server runs and that changes anything."""
        if self.alive and self.broker.state.is_draining != on:
            self._note("drains" if on else "takes sessions again")
            self._visit(OPERATOR, protocol.Drain(1, on))

    def check_nothing_waits(self) -> Iterator[str]:
        """Yield what is still on its way though all is quiet."""
        yield from super().check_nothing_waits()
        state = self.broker.state
        if kept := state.events.rows.keys() - {entry.event.id for _, queue in state.queue.waiting() for entry in queue}:
            yield f"{self.name} keeps the events {kept}, which wait nowhere"
        homes = {device_key(each.user, device) for each in state.sessions.values() for device in each.devices}
        for publisher in [key for key, _ in state.publishers.items() if key.endswith(decentralised_key(""))]:
            if publisher.removesuffix(decentralised_key("")).removesuffix("/outbox") not in homes:
                yield f"{self.name} still keeps the publishes of {publisher}, which is elsewhere"
