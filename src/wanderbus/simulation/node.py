"""Node: one machine in the simulated world, with a driver for virtual sockets and timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from wanderbus.machine import (
    Address,
    CancelTimer,
    CloseStream,
    DatagramReceived,
    Input,
    Machine,
    Output,
    SendDatagram,
    SendOnStream,
    SetTimer,
    TimerFired,
)
from wanderbus.simulation.network import Network
from wanderbus.simulation.streams import StreamHost
from wanderbus.simulation.timers import Timers
from wanderbus.simulation.world import World


class Wire(Protocol):
    """Link of a node for datagrams: the network, or a NAT before it."""

    def bind(self, address: Address, receiver: Callable[[Address, bytes], None]) -> None:
        """Deliver what arrives at ``address`` to ``receiver``."""
        ...

    def unbind(self, address: Address) -> None:
        """Discard what arrives at ``address``."""
        ...

    def send(self, source: Address, destination: Address, data: bytes) -> None:
        """Send a datagram."""
        ...


class Node:
    """Feeds a machine and performs its outputs; reports go to ``on_report``.

    ``sockets`` are for datagrams, ``streams`` for TCP and TLS, both by name. ``fingerprint`` is that of its
    certificate, and ``certified`` has the SIP domains that the certificate names. ``wire`` is the link of its sockets
    from the next time they are bound.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        sockets: Mapping[str, Address],
        world: World,
        network: Network,
        on_report: Callable[[Output], None],
        *,
        streams: Mapping[str, Address] | None = None,
        fingerprint: bytes = b"",
        certified: tuple[str, ...] = (),
        wire: Wire | None = None,
    ) -> None:
        self.name = name
        self.machine = machine
        self.alive = True
        self._world = world
        self.wire: Wire = network if wire is None else wire
        self._bound_to = self.wire
        self._on_report = on_report
        self.timers = Timers(world, lambda key: self.feed([TimerFired(key)]))
        self._sockets: dict[str, Address] = {}
        self._streams = StreamHost(world, network, self.feed, fingerprint=fingerprint, certified=certified)
        self.rebind(sockets, streams)

    def rebind(self, sockets: Mapping[str, Address], streams: Mapping[str, Address] | None = None) -> None:
        """Close every socket and open these, by name; the machine is notified of the streams that this ends.

        With None in place of ``streams`` these stay.
        """
        for address in self._sockets.values():
            self._bound_to.unbind(address)
        self._sockets = dict(sockets)
        self._bound_to = self.wire
        for name, address in sockets.items():
            self.wire.bind(address, self._receiver(name))
        if streams is not None and (ended := self._streams.bind(dict(streams))):
            self.feed(ended)

    def close_any_stream(self, name: str) -> None:
        """Close one of the connections of the socket ``name``, if it has any."""
        self._streams.close_any(name)

    def lose_mappings(self) -> None:
        """Break the connections as a NAT that forgets them."""
        self._streams.lose_mappings()

    def kill(self) -> None:
        """Stop at once, as by kill -9."""
        self.alive = False
        self._world.note(self.name, "killed")
        self._streams.kill()
        self.rebind({})
        self.timers.clear()

    def feed(self, inputs: Sequence[Input]) -> None:
        """Feed ``inputs`` to the machine now, and perform its outputs."""
        if self.alive:
            for given in inputs:
                self._note("<", given)
            self.perform(self.machine.step(inputs, self._world.now))

    def perform(self, outputs: Sequence[Output]) -> None:
        """Perform the outputs of the machine."""
        for output in outputs:
            self._note(">", output)
            match output:
                case SendDatagram(socket=socket, destination=destination, data=data):
                    if source := self._sockets.get(socket):
                        self._transmit(source, destination, data)
                case SetTimer(key=key, at=at):
                    self.timers.set(key, at)
                case CancelTimer(key=key):
                    self.timers.cancel(key)
                case SendOnStream():
                    self._streams.send(output)
                case CloseStream(connection=connection):
                    self._streams.close(connection)
                case _:
                    self._on_report(output)

    def _note(self, way: str, what: Input | Output) -> None:
        """Write an input or output into the trace."""
        self._world.note(self.name, f"{way} {what!r}")

    def _transmit(self, source: Address, destination: Address, data: bytes) -> None:
        """Send a datagram through the network."""
        self._bound_to.send(source, destination, data)

    def _receiver(self, socket: str) -> Callable[[Address, bytes], None]:
        return lambda source, data: self.feed([DatagramReceived(socket, source, data)])
