"""Circuits that end at this server: sessions of foreign domains at its broker (decision 0161).

A gateway of the own domain opens them, so whoever is at the other end speaks for a domain that the operator has added.
To the broker a circuit is a link of the reserved user of that domain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.messages import LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.servers.server_users import domain_user
from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened
from wanderbus.federation.circuits import HostedCircuit
from wanderbus.peers.leader_session import SESSION

_LEAVE: Final = 1
"""Number of the request to leave."""

DEVICE = "domain"
"""Device of a foreign domain's session: one gateway after the other reads it."""


class CircuitHost:
    """Opens a link of the broker for each circuit.

    :param domain: the own domain
    :param foreign: the foreign domains, which alone may have circuits
    :param new_link: returns the number of a link of the broker that is not used yet
    """

    def __init__(self, domain: str, foreign: Collection[str], new_link: Callable[[], int]) -> None:
        self._domain = domain
        self._foreign = frozenset(foreign)
        self._new_link = new_link
        self._links: dict[HostedCircuit, int] = {}
        self._circuits: dict[int, HostedCircuit] = {}
        self._of_domain: dict[str, HostedCircuit] = {}
        """The last circuit for each domain; the broker has no other one, since a device has one link."""
        self._leaving: set[int] = set()
        """Links of the broker on which domains leave that are not foreign ones any more."""
        self._replaced: list[tuple[int, CircuitClosed]] = []

    def has(self, link: int) -> bool:
        """Return whether a link of the broker is that of a circuit."""
        return link in self._circuits

    def take(
        self, peer_link: int, message: CircuitOpened | CircuitMessage | CircuitClosed
    ) -> Sequence[LinkOpened | LinkClosed | MessageArrived]:
        """Take a message of a gateway; return the inputs of the broker."""
        circuit = HostedCircuit(peer_link, message.circuit)
        match message:
            case CircuitOpened(domain=domain) if domain not in self._foreign:
                self._replaced.append((peer_link, CircuitClosed(circuit.number, f"{domain} is not in the file here")))
            case CircuitOpened(domain=domain) if circuit not in self._links:
                link = self._links[circuit] = self._new_link()
                self._circuits[link] = circuit
                self._replace(self._of_domain.get(domain))
                self._of_domain[domain] = circuit
                return [LinkOpened(link, domain_user(domain, self._domain), DEVICE, is_server=True)]
            case CircuitMessage(payload=payload) if (known := self._links.get(circuit)) is not None:
                return [MessageArrived(known, payload)]
            case CircuitClosed(reason=reason):
                return self._close([circuit], reason)
        return ()

    def take_replaced(self) -> list[tuple[int, CircuitClosed]]:
        """Return the ends of circuits that others have replaced, each with the link between servers to send it on."""
        replaced, self._replaced = self._replaced, []
        return replaced

    def link_closed(self, peer_link: int, reason: str) -> Sequence[LinkClosed]:
        """Close all circuits of a link between servers that has closed."""
        return self._close([each for each in self._links if each.peer_link == peer_link], reason)

    def leave(self, domains: Iterable[str], epoch: int) -> list[LinkOpened | MessageArrived]:
        """End the sessions of domains that this server shared events with; return the inputs of the broker."""
        inputs: list[LinkOpened | MessageArrived] = []
        for each in domains:
            link = self._new_link()
            self._leaving.add(link)
            inputs.append(LinkOpened(link, domain_user(each, self._domain), DEVICE, is_server=True))
            for message in (protocol.Attach(epoch, SESSION, None, keep=False), protocol.Leave(_LEAVE)):
                inputs.append(MessageArrived(link, protocol.encode(message)))
        return inputs

    def left(self, output: SendOnLink | LinkDropped) -> list[LinkClosed]:
        """Take what the broker says to a domain that leaves; close the link at the end."""
        if output.link not in self._leaving:
            return []
        if isinstance(output, SendOnLink):
            answer = protocol.decode_from_broker(output.payload)
            if not isinstance(answer, protocol.Done | protocol.RequestRefused) or answer.request != _LEAVE:
                return []
        self._leaving.discard(output.link)
        return [] if isinstance(output, LinkDropped) else [LinkClosed(output.link, "the domain has left")]

    def end(self, reason: str) -> Sequence[LinkClosed]:
        """Close all circuits."""
        return self._close(list(self._links), reason)

    def answer(self, output: SendOnLink | LinkDropped) -> tuple[int, CircuitMessage | CircuitClosed]:
        """Return what the broker sends to a foreign domain, with the link between servers that it goes out on."""
        circuit = self._circuits[output.link]
        if isinstance(output, SendOnLink):
            return circuit.peer_link, CircuitMessage(circuit.number, output.payload)
        del self._circuits[output.link], self._links[circuit]
        return circuit.peer_link, CircuitClosed(circuit.number, output.reason)

    def _replace(self, former: HostedCircuit | None) -> None:
        """Forget a circuit whose link the broker replaces by that of another one for the same domain."""
        if former is not None and (link := self._links.pop(former, None)) is not None:
            del self._circuits[link]
            self._replaced.append((former.peer_link, CircuitClosed(former.number, "another gateway has a circuit")))

    def _close(self, circuits: Sequence[HostedCircuit], reason: str) -> list[LinkClosed]:
        closed = []
        for circuit in circuits:
            if (link := self._links.pop(circuit, None)) is not None:
                del self._circuits[link]
                closed.append(LinkClosed(link, reason))
        return closed
