"""Simulated server with decentralised channels: it times each of its records, and may have a multicast group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus import protocol
from wanderbus.broker.messages import Append
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import ClockRead, DatagramReceived, Input, Output, SendDatagram
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.peers.parts import BROKER, DECENTRALISED_INTEREST, MULTICAST_SOCKET
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.domains.multicast_network import GROUP
from wanderbus.simulation.world import World

_DEVICE: Final = "phone"
DELAY_S: Final = 0.001


class DecentralisedNode(DomainNode):
    """A server whose links to devices are reliable; only a crash of the server ends them."""

    def __init__(
        self, world: World, name: str, channels: OwnChannels, config: BrokerConfig, next_sequence: Callable[[], int]
    ) -> None:
        super().__init__(world, name, channels, config, save_s=(0.2, 6.0))
        self.written: dict[int, tuple[int, float]] = {}
        """Place in the history of the world, and time, of each record."""
        self.group: Callable[[], MulticastGroup] | None = None
        """Returns the multicast group of a new life; None without one."""
        self.send_to_group: Callable[[bytes], None] = lambda data: None
        self.repaired = 0
        """Changes of interest that were sent by multicast and repaired, in all earlier lives."""
        self._next_sequence = next_sequence

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self.repaired = self.repaired_changes()
        super().crash(lose_rows=lose_rows)
        self.interest = None

    def repaired_changes(self) -> int:
        """Return the changes of interest that were sent by multicast and repaired, in all lives."""
        counts = {} if self.interest is None else self.interest.multicast_counts()
        return self.repaired + sum(each.repaired for each in counts.values())

    def datagram_arrived(self, data: bytes) -> None:
        """Take a datagram of the multicast group."""
        if self.alive:
            self._parts.precede(BROKER, ClockRead(self._world.wall_us))
            self._parts.give(DECENTRALISED_INTEREST, [DatagramReceived(MULTICAST_SOCKET, GROUP, data)])
            self._run()

    def _make_group(self) -> MulticastGroup | None:
        return None if self.group is None else self.group()

    def _perform(self, output: Input | Output) -> None:
        match output:
            case SendDatagram(data=data):
                self.send_to_group(data)
                return
            case Append(entries=entries):
                self.written.update((offset, (self._next_sequence(), self._world.now)) for offset, _, _ in entries)
        super()._perform(output)

    def open(self, user: str, receive: Callable[[bytes], None], delay_s: float = DELAY_S) -> int:
        """Open a link of a device, which messages to it take ``delay_s`` to pass; return its number."""
        link = self.next_link()
        self._open_device(link, user, _DEVICE, lambda payload: self._world.after(delay_s, lambda: receive(payload)))
        return link

    def send(self, link: int, *messages: protocol.AgentMessage) -> None:
        """Take messages of a device."""
        if link in self._devices:
            self._device_sent(link, [protocol.encode(each) for each in messages])

    def _drop_device(self, link: int, reason: str) -> None:
        self.problems.append(f"{self.name} drops the link of a device: {reason}")

    def _lose_devices(self) -> None:
        pass  # the scenario connects each device again when its server has started
