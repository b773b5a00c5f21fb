"""Simulated server of an ordered domain: links to its devices are slow and break, and its log loses old records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.messages import LogBegins
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_links import DomainLink
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.weeks.wire import Direction, Wire
from wanderbus.simulation.world import World

_VISITOR: Final = "another device"


class OrderedNode(DomainNode):
    """A server whose links to devices are slow and break, and whose log may lose old records."""

    def __init__(self, world: World, name: str, channels: OwnChannels, config: BrokerConfig) -> None:
        super().__init__(world, name, channels, config, save_s=(0.5, 8.0))
        self._wires: dict[int, Wire] = {}
        """Wire of each open link to a device."""
        self._newest: dict[tuple[str, str], int] = {}
        """Newest link of each device."""

    def _start_parts(self) -> None:
        """Request the links before the broker starts: no order may break a promise."""
        self._request_links()
        self._start_broker()

    def drop_log(self) -> None:
        """Lose old records of the log, as retention does."""
        if self.alive and self.disk.durable:
            self.storage.log_begins = max(
                self.storage.log_begins, self._world.random.randint(self.disk.durable // 2, self.disk.durable)
            )
            self._note(f"log begins at {self.storage.log_begins}")
            self.feed(LogBegins(self.storage.log_begins))

    def open(
        self, user: str, device: str, delay_s: float, receive: Callable[[int, Sequence[bytes]], None]
    ) -> Wire | None:
        """Open a link to a device, which replaces its earlier one; None while the server is down."""
        if not self.alive:
            return None
        link = self.next_link()
        former = self._newest.get((user, device), 0)
        if self._devices.pop(former, None) is not None:
            self._wires.pop(former).cut()
        up = Direction(self._world, delay_s, lambda payloads: self._device_sent(link, payloads))
        wire = Wire(link, up, Direction(self._world, delay_s, lambda payloads: receive(link, payloads)))
        self._wires[link] = wire
        self._newest[user, device] = link
        self._open_device(link, user, device, wire.down.send)
        return wire

    def open_directly(self, user: str, device: str, send: Callable[[bytes], None]) -> int:
        """Open a link to a device, without a delay; return its number. It is lost in a crash of the server alone."""
        link = self.next_link()
        self._open_device(link, user, device, send)
        return link

    def kick(self, user: str, device: str) -> bool:
        """Remove a device from the sessions of its user, as ``kick --forget``; return whether it had a link."""
        has_link = self._newest.get((user, device), 0) in self._devices
        if has_link:
            self._visit(user, protocol.Kick(1, user, device, True))
        return has_link

    def end_visits(self) -> None:
        """Let the devices that have removed others leave again, if a crash of the server has undone that."""
        if self.alive:
            for session in list(self.broker.state.sessions.values()):
                if _VISITOR in session.devices:
                    self._visit(session.user)

    def _visit(self, user: str, *messages: protocol.AgentMessage) -> None:
        """Attach another device of a user, let it send ``messages``, and leave."""
        link = self.open_directly(user, _VISITOR, lambda payload: None)
        for each in (protocol.Attach(1, "default", None, keep=True), *messages, protocol.Leave(2)):
            self.sent_directly(link, protocol.encode(each))
        self.close(link, "left")

    def has_link(self, link: int) -> bool:
        """Return whether a link to a device is open."""
        return link in self._devices

    def sent_directly(self, link: int, payload: bytes) -> None:
        """Take a message of a device whose link has no delay."""
        self._device_sent(link, [payload])

    def close(self, link: int, reason: str) -> None:
        """Report a link to a device as lost, unless that is known already."""
        self._wires.pop(link, None)
        super().close(link, reason)

    def _drop_device(self, link: int, reason: str) -> None:
        wire = self._wires[link]
        self._world.after(0.0, wire.cut)
        self._world.after(0.0, wire.on_drop)
        self._world.after(0.0, lambda: self.close(link, reason))

    def _lose_devices(self) -> None:
        wires = list(self._wires.values())
        self._wires.clear()
        self._newest.clear()
        for wire in wires:
            wire.cut()

    def _may_close(self, link: DomainLink) -> bool:
        """Allow it to close an own link: it requests missing events again, or the leader has refused it for now."""
        return link.source is self
