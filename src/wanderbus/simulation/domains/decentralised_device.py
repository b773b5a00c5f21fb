"""Simulated device at a server with decentralised channels: it publishes, replies, subscribes and advertises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.publisher_filter import PublisherFilter
from wanderbus.event import Event
from wanderbus.simulation.domains.decentralised_node import DELAY_S, DecentralisedNode
from wanderbus.simulation.domains.domain_node import DOMAIN

FILTERING_DELAY_S: Final = 0.7
"""Delay of messages to a device that holds back events: longer than servers take to spread a subscription."""


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

    def matches(self, subject: str, k: float) -> bool:
        """Return whether an event matches."""
        return self.subject in ("*", subject) and k < self.below and k != self.but


class Offer(msgspec.Struct, frozen=True):
    """Filter of an advertisement: events of ``subject`` with no K up to ``above``."""

    subject: str
    above: int

    @classmethod
    def of(cls, subject: str, expression: str) -> Offer:
        """Return the filter that has this ``expression``."""
        return cls(subject, int(expression.split()[3]))

    @property
    def expression(self) -> str:
        """Return the filter in ECI."""
        return f"all K > {self.above}"

    def matches(self, subject: str, k: float) -> bool:
        """Return whether an event matches."""
        return self.subject in ("*", subject) and k > self.above


class Refusal(msgspec.Struct, frozen=True):
    """A publish that was refused for good; ``is_advertised`` if an answered advertisement matched it all the time."""

    event: Event
    reason: str
    is_advertised: bool


class Subscribed(msgspec.Struct):
    """A subscription of the device, which counts from ``since``; ``ended`` once the device has asked for its end."""

    interest: Interest
    since: float
    handle: int
    ended: bool = False


class DecentralisedDevice:
    """The only device of a user at a server; ``on_event`` is called with each notification.

    With ``on_held_back`` it holds back events that nobody wants, and calls it with each.
    """

    def __init__(
        self,
        node: DecentralisedNode,
        now: Callable[[], float],
        on_event: Callable[[Event], None],
        on_held_back: Callable[[Event], None] | None = None,
    ) -> None:
        self.node = node
        self.user = f"sip:user-{node.name}@{DOMAIN}"
        self.subscriptions: dict[str, Subscribed] = {}
        self.refused = 0
        self.refusals: list[Refusal] = []
        self.advertised: dict[Offer, bool] = {}
        """Advertisements that were not withdrawn; True once they were answered."""
        self.accepted = 0
        self._now = now
        self._on_event = on_event
        self._on_held_back = on_held_back
        self._filter = PublisherFilter()
        self._link: int | None = None
        self._life = 0
        self._number = 0
        self._requests = 0
        self._publishes: dict[int, Event] = {}
        self._allowed: dict[int, set[Offer]] = {}
        """Advertisements that have allowed an open publish since it was sent."""
        self._asked: dict[int, tuple[Interest, int]] = {}
        self._advertising: dict[int, Offer] = {}

    def connect(self) -> None:
        """Open a link to the server, and repeat what was not answered."""
        if self._link is not None:
            self.node.close(self._link, "it failed")
        self._asked.clear()
        self._advertising.clear()
        self._filter.forget()
        delay_s = DELAY_S if self._on_held_back is None else FILTERING_DELAY_S
        link = self._link = self.node.open(self.user, lambda payload: self._receive(link, payload), delay_s)
        readers = [protocol.Reader(each.handle, identity) for identity, each in self.subscriptions.items()]
        self._send(protocol.Attach(1, "default", None, keep=True, is_filtering=self._on_held_back is not None))
        if readers:
            self._send(protocol.Read(tuple(readers)))
        for each in self.advertised:
            self._send_advertisement(each)
        self._send(*[protocol.Publish(number, event) for number, event in self._publishes.items()])

    def publish(self, event: Event) -> None:
        """Publish an event; it is repeated on each new link until it is answered."""
        self._number += 1
        if self._on_held_back is not None and self._filter.holds_back(protocol.encode_event(event), 0.0, self._now()):
            self._on_held_back(event)
        else:
            self._publishes[self._number] = event
            self._allowed[self._number] = {
                each for each, counts in self.advertised.items() if counts and each.matches(event.subject, _k(event))
            }
            self._send(protocol.Publish(self._number, event))
        self._send(*self._filter.take_unsent())

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

    def advertise(self, offer: Offer) -> None:
        """Request an advertisement; it is repeated on each new link, as an agent does until it is answered."""
        if offer not in self.advertised:
            self.advertised[offer] = False
            self._send_advertisement(offer)

    def withdraw(self, offer: Offer) -> None:
        """Request the end of an advertisement; the answer may be lost, and then it goes on."""
        if self._link is None:
            return
        self.advertised.pop(offer, None)
        for request in [each for each, about in self._advertising.items() if about == offer]:
            del self._advertising[request]
        for allowed in self._allowed.values():
            allowed.discard(offer)
        self._requests += 1
        self._send(protocol.Withdraw(self._requests, offer.subject, offer.expression))

    def _send_advertisement(self, offer: Offer) -> None:
        self._requests += 1
        self._advertising[self._requests] = offer
        self._send(protocol.Advertise(self._requests, offer.subject, offer.expression))

    def live_advertisements(self) -> list[Offer]:
        """Return the advertisements that the server has."""
        rows = self.node.broker.state.advertisements.values()
        return [Offer.of(row.subject, row.expression) for row in rows if row.user == self.user]

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
            case protocol.PublishRefused(number=number, reason=reason, limit=limit):
                if (event := self._publishes.pop(number, None)) is not None:
                    self.refused += 1
                    if limit in (None, "advertisement_pending"):
                        self.refusals.append(Refusal(event, reason, bool(self._allowed[number])))
            case protocol.Done(request=request) if request in self._advertising:
                if (offer := self._advertising.pop(request)) in self.advertised:
                    self.advertised[offer] = True
            case protocol.Done(request=request, subscriptions=several) if request in self._asked:
                interest, handle = self._asked.pop(request)
                known = self.subscriptions.get(several[0].id)
                # It may join a subscription whose end was requested before this answer came.
                ended = known is not None and known.ended
                self.subscriptions[several[0].id] = Subscribed(interest, self._now(), handle, ended)
            case protocol.Filters() as filters:
                self._filter.arrived(filters, self._now())
                self._send(*self._filter.take_unsent())
            case protocol.Notify(number=number, event=event, readers=readers):
                handles = readers or [each.handle for each in self.subscriptions.values()]
                self._send(*[protocol.NotifyAck(handle, number) for handle in handles])
                self._on_event(protocol.decode_event(bytes(event)))


def _k(event: Event) -> int:
    k = event["K"]
    assert isinstance(k, int)
    return k
