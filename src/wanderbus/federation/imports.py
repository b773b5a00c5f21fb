"""Events of one foreign domain for the own one: they are published here, each once and in order (SPEC M-01).

The publisher of an event is the reserved user of the foreign domain; the device is the server that accepted the event
there and its type, and the number is that server's. So leaders here recognise a repeat as that of any publisher, also
if another gateway sends it. Events of one server and type are an outbox: one that is refused for now holds back those
behind it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.messages import LinkClosed, LinkOpened, MessageArrived
from wanderbus.broker.publish.outbox_orders import holds_back
from wanderbus.broker.servers.server_users import domain_user
from wanderbus.channels.causal.domain_past import (
    CAUSE_WAIT_S,
    decode_domain_past,
    encode_domain_past,
    restricted,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId
from wanderbus.federation.cause_order import CauseOrder
from wanderbus.federation.imported import Imported, WaitingEvent
from wanderbus.federation.named_servers import NamedServers
from wanderbus.federation.parameters import ForeignDomain
from wanderbus.federation.reports.loss_reports import LossReports
from wanderbus.federation.wire import EventForwarded, EventPassed, EventsLost, EventsTaken
from wanderbus.limits import NUMBER_MAX
from wanderbus.tokens import TokenBucket

SESSION: Final = "import"
"""Session, and device, of the foreign domain's user at the broker of the gateway: it publishes, and subscribes to
nothing."""

WAITING_MAX: Final = 4_096
"""Events of a foreign domain that are not durable here yet. Its servers send no more than their windows, far fewer."""

HELD_BYTES_MAX: Final = 2**23
"""Events that wait for their causes while their domain may send others in their place."""

RETRY_S: Final = 1.0
"""Pause until events are published again that were refused for now."""


class Imports:
    """Publishes the events of a foreign domain through a link of the broker.

    :param domain: the foreign domain
    :param own: the own domain
    :param types: types that are received from it
    :param new_link: returns the number of a link of the broker that is not used yet
    :param epoch: identifies this life of the gateway; it rises with each
    :param events_per_s_max: most events a second; None for any number
    :param order: the causes that have come; None if the two domains have no causal order
    """

    def __init__(
        self,
        domain: str,
        own: str,
        types: frozenset[str],
        new_link: Callable[[], int],
        epoch: int,
        events_per_s_max: float | None = None,
        order: CauseOrder | None = None,
    ) -> None:
        self._domain = domain
        self._own = own
        self._order = order
        self._holding: dict[str, deque[WaitingEvent]] = {}
        """Events of each server that wait for causes, in order, and those behind them."""
        self._held_bytes = 0
        self._examine_at: float | None = None
        self._user = domain_user(domain, own)
        self._types = types
        self._new_link = new_link
        self._epoch = epoch
        self._pace = None if events_per_s_max is None else TokenBucket(events_per_s_max, max(1.0, events_per_s_max))
        self._losses = LossReports()
        self._named = NamedServers(domain)
        self._waiting: dict[str, deque[WaitingEvent]] = {}
        """Events of each server, in order."""
        self._requests: dict[int, WaitingEvent] = {}
        self._unpublished: OrderedDict[int, WaitingEvent] = OrderedDict()
        """Events that wait for their turn by the rate."""
        self._held: set[str] = set()
        """Devices with an event that was refused for now: what is behind it waits until all their answers are here."""
        self._last_request = 0
        self._count = 0
        self.link: int | None = None
        """Link of the broker."""
        self._is_retrying = False
        self.counts: Counter[str] = Counter()
        """Events by what became of them: published, repeated, not_received, refused, lost."""

    @property
    def waiting(self) -> int:
        """Return the number of events that are not durable here yet."""
        return self._count

    def received(self, message: EventForwarded | EventsLost | EventPassed, wall_us: int, now: float) -> Imported:
        """Take an event of the foreign domain; :class:`RemoteProtocolError` if it must not have sent this."""
        result = Imported()
        if self._count >= WAITING_MAX:
            raise RemoteProtocolError(f"{self._domain} sends more than it may", None)
        self._named.check(message.server)
        waiting = self._waiting.setdefault(message.server, deque())
        if waiting and message.number <= waiting[-1].number:
            self._forget(message.server, result)
        one = WaitingEvent(message.server, message.epoch, message.number)
        waiting.append(one)
        self._count += 1
        if isinstance(message, EventsLost):
            one.is_done = True
            self.counts["lost"] = min(NUMBER_MAX, self.counts["lost"] + message.count)
            result.lost, result.report_at = self._losses.lost(message, now)
        elif isinstance(message, EventPassed):
            one.is_done = True
            one.id = self._far_id(message.id)
        elif (publish := self._publish_of(message, wall_us, one)) is None:
            one.is_done = True
            self.counts["not_received"] += 1
        else:
            one.publish = publish
            self._requests[publish.request] = one
            if self._order is None:
                self._unpublished[publish.request] = one
            else:
                self._await_causes(one, result, now)
            self._go_on(result, now)
        self._finish(message.server, result)
        return result

    def examine(self, now: float, *, is_timer: bool = False) -> Imported:
        """Publish the events whose causes have come, or that have waited for long enough."""
        result = Imported()
        if is_timer:
            self._examine_at = None
        for server in list(self._holding):
            self._release(server, result, now)
        self._go_on(result, now)
        return result

    def _await_causes(self, one: WaitingEvent, result: Imported, now: float) -> None:
        """Let an event wait for its causes, and behind those of its server that wait."""
        holding = self._holding.setdefault(one.server, deque())
        holding.append(one)
        one.held_until = now + CAUSE_WAIT_S
        self._release(one.server, result, now)
        if one.server not in self._holding:
            return
        self.counts["held"] += 1
        assert one.publish is not None
        size = len(bytes(one.publish.event))
        if self._held_bytes + size <= HELD_BYTES_MAX:
            # Its causes may come behind it on the same link.
            self._held_bytes += size
            one.is_counted = True
            result.done += 1

    def _release(self, server: str, result: Imported, now: float) -> None:
        """Let the first events of a server go on that wait for nothing."""
        holding, order = self._holding[server], self._order
        assert order is not None
        while holding:
            one = holding[0]
            if one.causes:
                assert one.held_until is not None
                if order.must_wait(self._domain, one.causes):
                    if now < one.held_until:
                        self._examine_later(result, one.held_until)
                        return
                    order.give_up(self._domain, one.causes)
                if order.passes(self._domain, one.causes):
                    self.counts["unordered"] += 1
            holding.popleft()
            one.held_until = None
            assert one.publish is not None
            self._unpublished[one.publish.request] = one
        del self._holding[server]

    def _examine_later(self, result: Imported, at: float) -> None:
        if self._examine_at is None or at < self._examine_at:
            self._examine_at = result.examine_at = at

    def answered(self, payload: bytes, now: float) -> Imported:
        """Take a message of the broker here."""
        result = Imported()
        message = protocol.decode_from_broker(payload)
        if isinstance(message, protocol.PublishAccepted):
            self._done(message.number, "published", result)
        elif isinstance(message, protocol.PublishRefused):
            if message.limit == protocol.NUMBER_USED:
                self._done(message.number, "repeated", result)
            elif not holds_back(message.limit, is_foreign=True):
                self._done(message.number, "refused", result)
            elif (one := self._requests.get(message.number)) is not None:
                one.is_published = False
                self._held.add(one.device)
                self._retry_later(result, now + RETRY_S)
        return result

    def dropped(self, now: float) -> Imported:
        """Publish again, after a pause, what waits on a link that the broker has dropped."""
        result = Imported()
        self.link = None
        self._held.clear()
        for one in self._requests.values():
            one.is_published = False
        if self._requests:
            self._retry_later(result, now + RETRY_S)
        return result

    def retry(self, now: float) -> Imported:
        """Publish what was refused for now and what is behind it, and what has waited for the rate.

        What a device has on its way must not come between an event and those behind it that are published again.
        """
        result = Imported()
        self._is_retrying = False
        self._held &= {one.device for one in self._requests.values() if one.is_published}
        self._unpublished = OrderedDict(
            (request, one) for request, one in self._requests.items() if not one.is_published and one.held_until is None
        )
        self._go_on(result, now)
        if self._held:
            self._retry_later(result, now + RETRY_S)
        return result

    def losses_due(self, now: float) -> Imported:
        """Report what was lost since the last report."""
        result = Imported()
        result.lost, result.report_at = self._losses.due(now)
        return result

    def end(self) -> Imported:
        """Forget what waits: the link to the foreign domain is gone, and it sends everything again on the next one."""
        result = Imported(done=sum(not each.is_counted for several in self._waiting.values() for each in several))
        self._waiting.clear()
        self._holding.clear()
        self._held_bytes = 0
        self._requests.clear()
        self._unpublished.clear()
        self._held.clear()
        self._count = 0
        if self.link is not None:
            result.for_broker.append(LinkClosed(self.link, f"the link to {self._domain} is closed"))
            self.link = None
        return result

    def _forget(self, server: str, result: Imported) -> None:
        """Forget what waits of a server, which the other gateway reads again from its first unacknowledged event on."""
        again = self._waiting[server]
        self._count -= len(again)
        self._holding.pop(server, None)
        for one in again:
            self._count_done(one, result)
            if one.publish is not None:
                self._requests.pop(one.publish.request, None)
                self._unpublished.pop(one.publish.request, None)
        again.clear()

    def _far_id(self, identity: EventId) -> EventId:
        """Return the id by which all domains know an event of the foreign one."""
        self._named.check(identity.origin)
        return EventId(f"{self._domain}/{identity.origin}", identity.incarnation, identity.number)

    def _with_past(self, one: WaitingEvent, event: Event) -> Event:
        """Return an event with as much of its past as is believed here, and let it wait for that."""
        if not event.past or self._order is None:
            return msgspec.structs.replace(event, past=msgspec.UNSET) if event.past else event
        past = restricted(decode_domain_past(event.past), self._domain, self._own, self._order.domains)
        one.causes = tuple([each for each in past.causes if self._own in each.targets])
        domains = (self._domain, self._own, *sorted(self._order.domains - {self._domain}))
        return msgspec.structs.replace(event, past=encode_domain_past(past, domains))

    def _publish_of(self, message: EventForwarded, wall_us: int, one: WaitingEvent) -> protocol.PublishFor | None:
        """Return the event as it is published here; None if its type is not received."""
        identity, event = message.id, protocol.decode_event(bytes(message.event))
        subject = event.subject
        one.id = origin = self._far_id(identity)
        if subject not in self._types:
            return None
        event = self._with_past(one, msgspec.structs.replace(event, origin=origin))
        self._last_request += 1
        return protocol.PublishFor(
            self._last_request,
            self._user,
            device_of(identity, subject),
            identity.incarnation,
            identity.number,
            msgspec.Raw(protocol.encode_event(event)),
            wall_us,
            is_outbox=True,
        )

    def _go_on(self, result: Imported, now: float) -> None:
        """Publish as many events as the rate permits."""
        while self._unpublished:
            request, one = next(iter(self._unpublished.items()))
            if one.device in self._held:
                del self._unpublished[request]
                continue
            if self._pace is not None and not self._pace.take(now):
                self._retry_later(result, now + max(self._pace.wait_s(now), 0.01))
                return
            del self._unpublished[request]
            assert one.publish is not None
            one.is_published = True
            if self.link is None:
                self.link = self._new_link()
                attach = protocol.Attach(self._epoch, SESSION, None, keep=True)
                result.for_broker.append(LinkOpened(self.link, self._user, SESSION, is_server=True))
                result.for_broker.append(MessageArrived(self.link, protocol.encode(attach)))
            result.for_broker.append(MessageArrived(self.link, protocol.encode(one.publish)))

    def _retry_later(self, result: Imported, at: float) -> None:
        if not self._is_retrying:
            self._is_retrying = True
            result.retry_at = at

    def _done(self, request: int, kind: str, result: Imported) -> None:
        if (one := self._requests.pop(request, None)) is None:
            return
        one.is_done = True
        self.counts[kind] += 1
        self._finish(one.server, result)

    def _finish(self, server: str, result: Imported) -> None:
        """Acknowledge the events of a server up to the first that is not durable here."""
        waiting, last = self._waiting[server], None
        while waiting and waiting[0].is_done:
            last = waiting.popleft()
            self._count -= 1
            self._count_done(last, result)
            if last.id is not None and self._order is not None:
                self._order.reach(last.id)
        if last is not None:
            result.taken.append(EventsTaken(server, last.epoch, last.number))

    def _count_done(self, one: WaitingEvent, result: Imported) -> None:
        """Let the other domain send another event in place of this one, unless it may already."""
        if not one.is_counted:
            result.done += 1
        elif one.publish is not None:
            self._held_bytes -= len(bytes(one.publish.event))


def device_of(identity: EventId, subject: str) -> str:
    """Return the device that publishes an event here: the server that accepted it, and its type."""
    return f"{identity.origin}/{subject}"


def imports_of(
    domains: Iterable[ForeignDomain], own: str, new_link: Callable[[], int], epoch: int, order: CauseOrder
) -> dict[str, Imports]:
    """Return the imports of each foreign domain; ``order`` is for those with causal order."""
    return {
        each.name: Imports(
            *(each.name, own, each.receives, new_link, epoch, each.events_per_s_max),
            order=order if each.is_causal else None,
        )
        for each in domains
    }
