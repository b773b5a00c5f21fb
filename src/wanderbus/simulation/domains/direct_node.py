"""Simulated server with decentralised channels: it times each of its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus import protocol
from wanderbus.broker.messages import Append
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.world import World

_DEVICE: Final = "phone"
DELAY_S: Final = 0.001


class DirectNode(DomainNode):
    """A server whose links to devices are reliable; only a crash of the server ends them."""

    def __init__(
        self, world: World, name: str, channels: OwnChannels, config: BrokerConfig, next_sequence: Callable[[], int]
    ) -> None:
        super().__init__(world, name, channels, config, save_s=(0.2, 6.0))
        self.written: dict[int, tuple[int, float]] = {}
        """Place in the history of the world, and time, of each record."""
        self._next_sequence = next_sequence

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

    def _append(self, output: Append) -> None:
        for offset, _, _ in output.entries:
            self.written[offset] = self._next_sequence(), self._world.now
        super()._append(output)
