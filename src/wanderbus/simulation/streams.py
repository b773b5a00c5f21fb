"""Simulated TCP: reliable pipes that take time to open, break silently, and report it late or never (SPEC X37).

Bytes arrive in order, split at random. If the path is cut or the other host is gone, no error is reported: the sender
retransmits for a while, and only then the connection fails. An idle connection does not notice the break. The inputs
and outputs of the machine are those of ``runtime/net/streams.py``: the first data to a target opens a connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Literal, cast

from wanderbus.machine import Address, Input, SendOnStream, StreamClosed, StreamReceived, StreamTarget
from wanderbus.simulation.network import Network
from wanderbus.simulation.world import World

CONNECT_S_MAX: Final = 5.0
"""Longest time to open, as ``StreamLimits.connect_s_max``."""

UNSENT_BYTES_MAX: Final = 2**20
"""Largest backlog of one connection, as ``StreamLimits.unsent_bytes_max``."""

REPEAT_S: Final = 0.2
"""Time before the first retransmission of a lost segment; doubled each time (RFC 6298 2, with Linux's minimum)."""

REPEAT_S_MAX: Final = 8.0

EPHEMERAL_PORT: Final = 49_152

_NOWHERE: Final[Address] = ("0.0.0.0", 0)
"""Address that no host has."""

_Kind = Literal["TCP", "TLS"]


class StreamEnd:
    """One side's end of a connection. ``other`` is None until the connection is open."""

    def __init__(self, host: StreamHost, number: int, local: Address, peer: Address, target: StreamTarget | None):
        self.host = host
        self.number = number
        self.local = local
        self.peer = peer
        self.target = target
        self.kind: _Kind = "TCP"
        self.other: StreamEnd | None = None
        self.closed = False
        self.has_received = False
        self.under_way: deque[tuple[float, bytes]] = deque()
        """Sent data that has not arrived, with its arrival time on an undisturbed path."""
        self.moving = False
        """True if the arrival of the first of ``under_way`` is scheduled, or waits for a retransmission."""


class StreamHost:
    """The connections and listeners of one node.

    ``feed`` passes inputs to its machine, ``fingerprint`` is that of the certificate that it shows under TLS, and
    ``certified`` has the SIP domains that the certificate names.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        feed: Callable[[list[Input]], None],
        *,
        fingerprint: bytes = b"",
        certified: tuple[str, ...] = (),
    ) -> None:
        self.fingerprint = fingerprint
        self.certified = certified
        self._world = world
        self._network = network
        self._feed = feed
        self._sockets: dict[str, Address] = {}
        self._ends: dict[int, StreamEnd] = {}
        self._names: dict[int, str] = {}
        self._by_target: dict[StreamTarget, StreamEnd] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._ends)

    def bind(self, sockets: dict[str, Address]) -> list[Input]:
        """Listen at these addresses, by name of socket, and at no others; with port 0 a socket opens connections alone.

        The old connections are lost, because their address may be gone; the other side is not notified. Returns the
        inputs for the machine.
        """
        for address in self._sockets.values():
            self._network.listeners.pop(address, None)
        inputs: list[Input] = []
        for end in list(self._ends.values()):
            inputs += self._forget(end, "closed here")
        self._sockets = dict(sockets)
        for name, address in sockets.items():
            if address[1]:
                self._network.listeners[address] = (self, name)
        return inputs

    def listen(self, name: str, address: Address) -> None:
        """Listen at one more address; the connections stay."""
        self._sockets[name] = address
        self._network.listeners[address] = (self, name)

    def stop_listening(self, name: str) -> None:
        """End :meth:`listen`, and close the connections of this socket."""
        self._network.listeners.pop(self._sockets.pop(name), None)
        for number in [number for number, socket in self._names.items() if socket == name]:
            self.close(number)

    def lose_mappings(self) -> None:
        """Break each connection as a NAT that forgets it: who sends here is reset, who sends there is not answered."""
        for end in self._ends.values():
            if (other := end.other) is not None:
                end.other, other.other = (
                    StreamEnd(each.host, 0, (each.local[0], 0) if each is other else _NOWHERE, each.peer, None)
                    for each in (other, end)
                )
                end.other.closed = other.other.closed = True

    def kill(self) -> None:
        """End the process; its system resets every connection."""
        ends = list(self._ends.values())
        self.bind({})
        for end in ends:
            self._notify_other(end, "reset by the other side")

    def send(self, wanted: SendOnStream) -> None:
        """Send on a connection, or open one."""
        end = self._ends.get(wanted.connection) if wanted.connection is not None else None
        if end is None and wanted.reopen:
            end = self._by_target.get(wanted.target) or self._connect(wanted.socket, wanted.target)
        if end is None:
            return
        end.under_way += self._leaving(end, self._pieces(wanted.data))
        if sum(len(piece) for _, piece in end.under_way) > UNSENT_BYTES_MAX:
            self._lose(end, "the other side does not take what is sent")
        elif end.other is not None:
            self._move(end)

    def close(self, number: int) -> None:
        """Close a connection at once; its data in flight may be lost."""
        end = self._ends.get(number)
        if end is not None:
            self._lose(end, "closed here")
            self._notify_other(end, "closed by the other side")

    def close_target(self, target: StreamTarget) -> None:
        """Close the connection that was opened to ``target``, if there is one."""
        if end := self._by_target.get(target):
            self.close(end.number)

    def close_any(self, name: str) -> None:
        """Close one of the connections of the socket ``name``, if it has any."""
        if numbers := [number for number, socket in self._names.items() if socket == name]:
            self.close(self._world.random.choice(numbers))

    # Opening ------------------------------------------------------------------------------------------------------

    def _connect(self, name: str, target: StreamTarget) -> StreamEnd | None:
        local = self._sockets.get(name)
        self._count += 1
        if local is None:
            self._later([StreamClosed(name, self._count, "there are no streams here", target)])
            return None
        source = (local[0], EPHEMERAL_PORT + self._count % 10_000)
        end = self._add(name, StreamEnd(self, self._count, source, target.address, target))
        end.kind = cast(_Kind, target.transport)
        self._by_target[target] = end
        round_trips = 1 if end.kind == "TCP" else 2
        delay_s = sum(self._delay_s(*way) for way in (_hosts_of(end), _hosts_of(end)[::-1]) * round_trips)
        self._world.after(min(delay_s, CONNECT_S_MAX), lambda: self._open(end, self._world.now + CONNECT_S_MAX))
        return end

    def _open(self, end: StreamEnd, until: float) -> None:
        """Open ``end`` if the other side listens; a cut path may be repaired in time."""
        if end.closed:
            return
        host, name = self._network.listeners.get(end.peer, (None, ""))
        if self._is_cut(end) or (host is None and not self._network.has_host(end.peer[0])):
            if self._world.now + REPEAT_S < until:
                self._world.after(REPEAT_S, lambda: self._open(end, until))
            else:
                self._lose(end, "no connection in time")
        elif host is None:
            self._lose(end, "connection refused")
        elif end.target is not None and end.target.fingerprint not in (None, host.fingerprint):
            self._lose(end, "the certificate is another one")
        elif end.target is not None and end.target.sip_domain not in (None, *host.certified):
            self._lose(end, "the certificate names another domain")
        else:
            end.other = host._accept(name, end)
            end.under_way = deque(self._leaving(end, [piece for _, piece in end.under_way]))
            self._move(end)

    def _accept(self, name: str, caller: StreamEnd) -> StreamEnd:
        self._count += 1
        end = self._add(name, StreamEnd(self, self._count, caller.peer, caller.local, None))
        end.kind, end.other = caller.kind, caller
        return end

    def _add(self, name: str, end: StreamEnd) -> StreamEnd:
        self._ends[end.number] = end
        self._names[end.number] = name
        return end

    def _is_cut(self, end: StreamEnd) -> bool:
        return self._network.is_cut(*_hosts_of(end)) or self._network.is_dropped("TCP", end.local, end.peer)

    # Data in flight ------------------------------------------------------------------------------------------------

    def _pieces(self, data: bytes) -> list[bytes]:
        """Split ``data`` like a network, which does not know messages."""
        draw = self._world.random
        if len(data) < 2 or draw.random() < 0.5:
            return [data] if data else []
        at = draw.randrange(1, len(data))
        return [data[:at], data[at:]]

    def _leaving(self, end: StreamEnd, pieces: list[bytes]) -> list[tuple[float, bytes]]:
        """Return the pieces with their arrival times if they leave now."""
        return [(self._world.now + self._delay_s(*_hosts_of(end)), piece) for piece in pieces]

    def _move(self, end: StreamEnd) -> None:
        if end.moving or not end.under_way:
            return
        end.moving = True
        give_up_at = self._world.now + self._world.random.choice([6.0, 20.0, 60.0])
        arrives_at, _ = end.under_way[0]
        self._world.at(arrives_at, lambda: self._arrive(end, REPEAT_S, give_up_at))

    def _arrive(self, end: StreamEnd, repeat_s: float, give_up_at: float) -> None:
        """Deliver the data in flight from ``end``, or schedule a retransmission."""
        other = end.other
        if end.closed or other is None:
            return
        gone = other.closed and not self._network.has_host(other.local[0])
        if gone or self._is_cut(end):
            if self._world.now < give_up_at:
                again_s = min(2 * repeat_s, REPEAT_S_MAX)
                self._world.after(repeat_s, lambda: self._arrive(end, again_s, give_up_at))
            else:
                self._lose(end, "timed out")
        elif other.closed:
            self._world.after(self._delay_s(*_hosts_of(end)[::-1]), lambda: self._lose(end, "reset by the other side"))
        else:
            end.moving = False
            there = sum(arrives_at <= self._world.now for arrives_at, _ in end.under_way)
            taken = self._world.random.randint(1, max(there, 1))
            other.host.take(other, b"".join(end.under_way.popleft()[1] for _ in range(taken)))
            self._move(end)

    def take(self, end: StreamEnd, data: bytes) -> None:
        """Feed data that arrived at ``end`` to the machine."""
        end.has_received = True
        name = self._names[end.number]
        certified = end.other.host.certified if end.other is not None and end.kind == "TLS" else ()
        self._feed([StreamReceived(name, end.number, end.peer, data, end.kind, end.target, certified)])

    # End of a connection -------------------------------------------------------------------------------------------

    def _lose(self, end: StreamEnd, reason: str) -> None:
        self._later(self._forget(end, reason))

    def _later(self, inputs: list[Input]) -> None:
        """Feed inputs to the machine later, not within its own step."""
        if inputs:
            self._world.after(0.0, lambda: self._feed(inputs))

    def _forget(self, end: StreamEnd, reason: str) -> list[Input]:
        """Remove an end; return the inputs for the machine, none if the peer opened it and never used it."""
        if end.closed:
            return []
        end.closed = True
        del self._ends[end.number]
        name = self._names.pop(end.number)
        if end.target is not None and self._by_target.get(end.target) is end:
            del self._by_target[end.target]
        is_used = end.has_received or end.target is not None
        return [StreamClosed(name, end.number, reason, end.target)] if is_used else []

    def _notify_other(self, end: StreamEnd, reason: str) -> None:
        """Notify the other side if the path is not cut; part of the data in flight may still arrive first."""
        other = end.other
        last = b"".join(piece for _, piece in end.under_way) if self._world.random.random() < 0.5 else b""

        def tell() -> None:
            if other is None or other.closed or self._is_cut(end):
                return
            if last:
                other.host.take(other, last)
            other.host._lose(other, reason)

        self._world.after(self._delay_s(*_hosts_of(end)), tell)

    def _delay_s(self, source: str, destination: str) -> float:
        """Return the delay of a segment, including retransmissions after losses."""
        draw = self._world.random
        conditions = self._network.conditions_of(source, destination)
        delay_s, repeat_s = draw.uniform(conditions.delay_min_s, conditions.delay_max_s), REPEAT_S
        while draw.random() < conditions.loss:
            delay_s += repeat_s
            repeat_s = min(2 * repeat_s, REPEAT_S_MAX)
        return delay_s


def _hosts_of(end: StreamEnd) -> tuple[str, str]:
    """Return the IP addresses between which ``end`` sends."""
    return end.local[0], end.peer[0]
