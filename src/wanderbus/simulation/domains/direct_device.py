"""Simulated device at a server with decentralised channels: it publishes, replies, subscribes and unsubscribes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from wanderbus import protocol
from wanderbus.event import Event
from wanderbus.simulation.domains.direct_node import DirectNode
from wanderbus.simulation.domains.domain_node import DOMAIN


class Interest(msgspec.Struct, frozen=True):
    """Filter of a subscription: events of ``subject`` with K below ``below`` and not ``but``."""

    subject: str
    below: int
    but: int

    @classmethod
    def of(cls, subject: str, expression: str) -> Interest:
        """Return the filter that has this ``expression``."""
        words = expression.split()
        return cls(subject, int(words[2]), int(words[6]))

    @property
    def expression(self) -> str:
        """Return the filter in ECI."""
        return f"K < {self.below} and K != {self.but}"

    def matches(self, subject: str, k: int) -> bool:
        """Return whether an event matches."""
        return self.subject in ("*", subject) and k < self.below and k != self.but


class Subscribed(msgspec.Struct):
    """A subscription of the device, which counts from ``since``; ``ended`` once the device has asked for its end."""

    interest: Interest
    since: float
    handle: int
    ended: bool = False


class DirectDevice:
    """The only device of a user at a server; ``on_event`` is called with each notification."""

    def __init__(self, node: DirectNode, now: Callable[[], float], on_event: Callable[[Event], None]) -> None:
        self.node = node
        self.user = f"sip:user-{node.name}@{DOMAIN}"
        self.subscriptions: dict[str, Subscribed] = {}
        self.refused = 0
        self.accepted = 0
        self._now = now
        self._on_event = on_event
        self._link: int | None = None
        self._life = 0
        self._number = 0
        self._requests = 0
        self._publishes: dict[int, Event] = {}
        self._asked: dict[int, tuple[Interest, int]] = {}

    def connect(self) -> None:
        """Open a link to the server, and repeat what was not answered."""
        if self._link is not None:
            self.node.close(self._link, "it failed")
        self._asked.clear()
        link = self._link = self.node.open(self.user, lambda payload: self._receive(link, payload))
        readers = [protocol.Reader(each.handle, identity) for identity, each in self.subscriptions.items()]
        self._send(protocol.Attach(1, "default", None, keep=True))
        if readers:
            self._send(protocol.Read(tuple(readers)))
        self._send(*[protocol.Publish(number, event) for number, event in self._publishes.items()])

    def publish(self, event: Event) -> None:
        """Publish an event; it is repeated on each new link until it is answered."""
        self._number += 1
        self._publishes[self._number] = event
        self._send(protocol.Publish(self._number, event))

    def subscribe(self, interest: Interest) -> None:
        """Request a subscription; it is not repeated if it is not answered on this link."""
        self._requests += 1
        request = self._requests
        self._asked[request] = interest, request
        self._send(
            protocol.Subscribe(
                request, interest.subject, interest.expression, None, (), this_device_only=False, reader=request
            )
        )

    def unsubscribe(self, identity: str) -> None:
        """Request the end of a subscription."""
        self.subscriptions[identity].ended = True
        self._requests += 1
        self._send(protocol.Unsubscribe(self._requests, identity))

    def live(self) -> list[Interest]:
        """Return the interests that the server has; the answer to a request of this device may be lost."""
        rows = [each.subscription for each in self.node.broker.state.subscriptions.values()]
        return [Interest.of(each.subject, each.expression) for each in rows if each.owner == self.user]

    def _send(self, *messages: protocol.AgentMessage) -> None:
        if self._link is not None and messages:
            self.node.send(self._link, *messages)

    def _receive(self, link: int, payload: bytes) -> None:
        if link != self._link:
            return
        match protocol.decode_from_broker(payload):
            case protocol.PublishAccepted(number=number):
                self.accepted += self._publishes.pop(number, None) is not None
            case protocol.PublishRefused(number=number):
                self.refused += self._publishes.pop(number, None) is not None
            case protocol.Done(request=request, subscriptions=several) if request in self._asked:
                interest, handle = self._asked.pop(request)
                self.subscriptions[several[0].id] = Subscribed(interest, self._now(), handle)
            case protocol.Notify(number=number, event=event, readers=readers):
                handles = readers or [each.handle for each in self.subscriptions.values()]
                self._send(*[protocol.Take(handle, number) for handle in handles])
                self._on_event(protocol.decode_event(bytes(event)))
