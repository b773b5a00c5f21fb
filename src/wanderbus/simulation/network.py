"""Simulated network: loses, repeats, delays, damages and reorders datagrams; hosts are added, removed and moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from wanderbus.machine import Address
from wanderbus.simulation.nat.firewall import Firewall, Protocol
from wanderbus.simulation.world import World

if TYPE_CHECKING:
    from wanderbus.simulation.streams import StreamHost

Receiver = Callable[[Address, bytes], None]


class PathConditions(msgspec.Struct):
    """Quality of a network path: chances from 0 to 1, one-way delays in seconds."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_min_s: float = 0.001
    delay_max_s: float = 0.01
    spike: float = 0.0
    """Chance that a datagram is delayed by ``spike_s`` more, so that later datagrams overtake it."""
    spike_s: float = 0.5
    damage: float = 0.0
    """Chance that a few bits of a datagram are flipped without a checksum error."""
    bytes_per_s: float | None = None
    """Rate of the narrowest link; datagrams queue before it."""
    line_s_max: float = 0.2
    """Longest wait in the queue; a datagram that would have to wait longer is lost."""
    datagram_bytes_max: int | None = None
    """Size above which datagrams are lost silently, a black hole of path MTU discovery (RFC 2923 2.1)."""


class Network:
    """Delivers each datagram to the receiver that is bound to the destination on arrival.

    ``towards`` has the conditions of the paths to an IP address, and ``within`` those between the sockets of one, if
    they differ from the general ones; ``listeners`` are the hosts that accept streams, and the names of their sockets.
    """

    def __init__(self, world: World, conditions: PathConditions) -> None:
        self.conditions = conditions
        self.towards: dict[str, PathConditions] = {}
        self.within: PathConditions | None = None
        self.delivered = 0
        self.tap: Callable[[Address, Address, bytes], None] = lambda source, destination, data: None
        """Called with every datagram that is sent."""
        self.listeners: dict[Address, tuple[StreamHost, str]] = {}
        self.firewalls: dict[str, Firewall] = {}
        """Firewalls, by the IP address that each protects."""
        self.dropped = 0
        """Number of datagrams and connection attempts that a firewall dropped."""
        self._world = world
        self._bound: dict[Address, Receiver] = {}
        self._cut: set[str] = set()
        self._line_free_at: dict[str, float] = {}

    def bind(self, address: Address, receiver: Receiver) -> None:
        """Deliver what arrives at ``address`` to ``receiver``."""
        self._bound[address] = receiver

    def unbind(self, address: Address) -> None:
        """Discard what arrives at ``address``."""
        self._bound.pop(address, None)

    def is_bound(self, address: Address) -> bool:
        """Return whether a receiver is bound to ``address``."""
        return address in self._bound

    def has_host(self, ip: str) -> bool:
        """Return whether a host has the address ``ip``."""
        return any(address[0] == ip for addresses in (self._bound, self.listeners) for address in addresses)

    def cut(self, ip: str) -> None:
        """Discard everything to and from ``ip``."""
        self._cut.add(ip)

    def mend(self, ip: str) -> None:
        """End :meth:`cut`."""
        self._cut.discard(ip)

    def is_cut(self, *ips: str) -> bool:
        """Return whether one of ``ips`` is cut off."""
        return not self._cut.isdisjoint(ips)

    def is_dropped(self, protocol: Protocol, source: Address, destination: Address) -> bool:
        """Return whether a firewall drops a message from ``source`` to ``destination``; count it if so."""
        for host, peer in ((source, destination), (destination, source)):
            firewall = self.firewalls.get(host[0])
            if firewall is not None and firewall.drops(protocol, peer):
                self.dropped += 1
                return True
        return False

    def conditions_of(self, source: str, destination: str) -> PathConditions:
        """Return the conditions of the path from one IP address to another."""
        if self.within is not None and source == destination:
            return self.within
        return self.towards.get(destination, self.conditions)

    def send(self, source: Address, destination: Address, data: bytes) -> None:
        """Deliver a datagram as far as the conditions allow."""
        self.tap(source, destination, data)
        draw = self._world.random
        conditions = self.conditions_of(source[0], destination[0])
        if conditions.datagram_bytes_max is not None and len(data) > conditions.datagram_bytes_max:
            return
        copies = 2 if draw.random() < conditions.duplication else 1
        for _ in range(copies):
            lost = draw.random() < conditions.loss
            delay = draw.uniform(conditions.delay_min_s, conditions.delay_max_s)
            if draw.random() < conditions.spike:
                delay += conditions.spike_s
            if conditions.bytes_per_s is not None:
                waiting_s = self._enqueue(destination[0], len(data) / conditions.bytes_per_s, conditions.line_s_max)
                lost = lost or waiting_s > conditions.line_s_max
                delay += waiting_s
            if lost or source[0] in self._cut or self.is_dropped("UDP", source, destination):
                continue
            damaged = conditions.damage and draw.random() < conditions.damage
            self.carry(source, destination, self._damage(data) if damaged else data, delay)

    def carry(self, source: Address, destination: Address, data: bytes, delay_s: float) -> None:
        """Deliver a datagram in ``delay_s`` seconds, whatever the conditions; ``source`` may be forged."""
        self._world.after(delay_s, lambda: self._arrive(source, destination, data))

    def _arrive(self, source: Address, destination: Address, data: bytes) -> None:
        receiver = self._bound.get(destination)
        if receiver is not None and destination[0] not in self._cut:
            self.delivered += 1
            receiver(source, data)

    def _enqueue(self, ip: str, service_s: float, waiting_s_max: float) -> float:
        """Return how long a datagram waits for the link towards ``ip``, its own transmission included; enqueue it."""
        now = self._world.now
        done_at = max(self._line_free_at.get(ip, now), now) + service_s
        if done_at - now <= waiting_s_max:
            self._line_free_at[ip] = done_at
        return done_at - now

    def _damage(self, data: bytes) -> bytes:
        draw = self._world.random
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4) if data else 0):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        return bytes(changed)
