"""Simulated device at a server with decentralised channels: it advertises what it publishes, sometimes too little."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from wanderbus import filters, protocol
from wanderbus.client.machine.messages import PublishSettled, RequestSettled
from wanderbus.event import Event
from wanderbus.simulation.device import Request
from wanderbus.simulation.domains.domain_device import DomainDevice


class OfferedFilter(NamedTuple):
    """Filter of an advertisement or a subscription."""

    subject: str
    expression: str

    def matches(self, event: Event) -> bool:
        """Return whether an event matches."""
        return self.subject in ("*", event.subject) and _parsed(self.expression).matches(event)


@cache
def _parsed(expression: str) -> filters.Filter:
    return filters.parse(expression)


class PublishRefusal(NamedTuple):
    """A publish that was refused for good; ``is_advertised`` if an answered advertisement matched it all the time."""

    event: Event
    reason: str
    is_advertised: bool


class AdvertisingDevice(DomainDevice):
    """A device that advertises what it publishes."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self.refusals: list[PublishRefusal] = []
        self.advertised: dict[OfferedFilter, bool] = {}
        """Advertisements that were not withdrawn; True once they were answered."""
        self._allowed: dict[str, set[OfferedFilter]] = {}
        """Advertisements that have allowed a publish since it was sent, by the name of its event."""
        super().__init__(*given, **options)

    def advertise(self, offer: OfferedFilter) -> None:
        """Request an advertisement."""
        if offer not in self.advertised:
            self.advertised[offer] = False
            self.ask(protocol.Advertise(0, *offer))

    def withdraw(self, offer: OfferedFilter) -> None:
        """Request the end of an advertisement."""
        self.advertised.pop(offer, None)
        for allowed in self._allowed.values():
            allowed.discard(offer)
        self.ask(protocol.Withdraw(0, *offer))

    def publish(self, event: Event, *, outbox: bool = False, twice: bool = False) -> None:
        """Publish an event, which has a unique ``Uid``."""
        counting = {each for each, counts in self.advertised.items() if counts and each.matches(event)}
        self._allowed[str(event["Uid"])] = counting
        super().publish(event, outbox=outbox, twice=twice)

    def live_advertisements(self) -> list[OfferedFilter]:
        """Return the advertisements that the server has."""
        rows = self.node.broker.state.advertisements.values()
        return [OfferedFilter(row.subject, row.expression) for row in rows if row.user == self.user]

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        if not isinstance(asked, protocol.Advertise):
            super()._answered(asked, settled)
        elif settled.refusal is None:
            offer = OfferedFilter(asked.subject, asked.expression)
            self.advertised |= {offer: True} if offer in self.advertised else {}
        elif "withdrawn before it counted" not in settled.refusal.reason:
            self._refused(asked, settled.refusal)

    def _settled(self, settled: PublishSettled) -> None:
        published = self.published[self._uids[settled.outbox, settled.number]]
        if settled.id is None and settled.limit in (None, "advertisement_pending"):
            is_advertised = bool(self._allowed[published.uid])
            self.refusals.append(PublishRefusal(published.event, settled.reason or "", is_advertised))
        super()._settled(settled)
