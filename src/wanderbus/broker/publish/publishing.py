"""Processing of a publish: accept the event, deliver it, write both as one record, and answer."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.groups.group_loads import GroupLoads
from wanderbus.broker.publish.acceptance import (
    accept,
    accepted_as,
    is_repeated,
    offered,
)
from wanderbus.broker.publish.decisions import Delivered, Offered, Rejected, Repeated, Source
from wanderbus.broker.publish.delivery import Delivery
from wanderbus.broker.publish.foreign_publishers import ForeignPublishers
from wanderbus.broker.publish.former_servers import FormerServers
from wanderbus.broker.publish.held_publishes import HeldPublishes, PublisherMessage
from wanderbus.broker.publish.leaving_publishers import LeavingPublishers
from wanderbus.broker.publish.outbox_orders import OutboxOrders
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.servers.forwarding import Forwarding
from wanderbus.broker.servers.leader_messages import InterestAwaited
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.rows import PublisherRow, decentralised_key, device_key, publisher_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.event import Event, EventId
from wanderbus.protocol.outbox_order import OUT_OF_TURN
from wanderbus.records import Acceptance
from wanderbus.subscription import Subscription


class Publishing:
    """Accepts or refuses each published event, and generates its notifications."""

    def __init__(
        self,
        basics: Basics,
        subscriptions: Subscriptions,
        engine: EngineEvents,
        delivery: Delivery,
        forwarding: Forwarding,
        advertisements: Advertisements,
        settled: SettledInterest,
        decentralised: DecentralisedEvents | None,
        former: FormerServers,
        leaving: LeavingPublishers,
        loads: GroupLoads,
    ) -> None:
        self._conditions = basics.conditions
        self._servers = basics.servers
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._channels = basics.channels
        self._subscriptions = subscriptions
        self._engine = engine
        self._delivery = delivery
        self._forwarding = forwarding
        self._advertisements = advertisements
        self._settled = settled
        settled.resume_by(self._server_reported)
        self._held: HeldPublishes[PublisherMessage] = HeldPublishes(basics.links)
        self._decentralised = decentralised
        self._former = former
        self._loads = loads
        self._foreign = ForeignPublishers(basics.state)
        self._orders = OutboxOrders(basics.links)
        former.serve_by(self.publish)
        self._leaving = leaving
        leaving.serve_by(self.publish, self._held)
        self._offered: dict[int, tuple[PublisherMessage, Source, Offered]] = {}
        """Coming messages that were read already, and the publisher and event of each, by object identity."""

    def prematch(self, coming: Iterable[tuple[Link, PublisherMessage]]) -> None:
        """Match the coming publishes in one batch, except repeats and malformed events."""
        self._offered.clear()
        if self._conditions.is_disk_full:
            return
        events: list[Event] = []
        for link, message in coming:
            if link.session is None:
                continue
            source = self._source(link, message)
            one = offered(message.event, self._conditions.event_bytes_max)
            self._offered[id(message)] = message, source, one
            subject = one.event.subject
            publisher = self._publisher(source, subject)
            if publisher is not None and is_repeated(publisher, source.epoch, source.number):
                continue
            if (
                one.rejected is None
                and not self._engine.is_for_engine(subject)
                and not self._forwarding.is_led_elsewhere(subject)
            ):
                events.append(one.event)
        if len(events) > 1:
            self._subscriptions.matcher.prematch(events)

    def publish(self, link: Link, message: PublisherMessage) -> None:
        """Write an event with its notifications to the log, or refuse it; a repeat gets the first answer again."""
        self._subscriptions.end_expired()
        if (read := self._offered.pop(id(message), None)) is None:
            source, one = self._source(link, message), offered(message.event, self._conditions.event_bytes_max)
        else:
            _, source, one = read
        if self._leaving.holds(link, source.key):
            if rejected := self._leaving.hold(link, source.key, len(one.encoded), message):
                self._refuse(link, source, rejected.reason, rejected.limit)
            return
        event, state = one.event, self._state
        awaited = self._orders.awaited(link, source)
        is_led_elsewhere = self._forwarding.is_led_elsewhere(event.subject)
        # Another server may know before this one that this one is to lead the channel.
        if is_led_elsewhere and not (link.is_server and self._settled.is_paused(event.subject)):
            self._forward(link, source, one, awaited)
            return
        if self._former.waiting and self._former.holds(link, source.key, event.subject):
            if rejected := self._former.hold(link, source.key, len(one.encoded), message):
                self._refuse(link, source, rejected.reason, rejected.limit)
            return
        if self._settled.holds and self._waits(link, source, message, one):
            return
        has_models = self._decentralised is not None or self._state.groups.rows
        if has_models and (answer := self._known(one, source)) is not None:
            self._answer(link, source, answer)
            return
        publisher = self._publisher(source, event.subject)
        if awaited is not None and source.is_foreign and publisher is not None and publisher.epoch == source.epoch:
            awaited = self._orders.awaited(link, source, publisher.number)
        known = publisher, state.next_id, self._conditions, state.identity
        decided = accept(one, source, awaited, *known)
        if type(decided) is Acceptance and (group := self._moved_group(event.subject)) is not None:
            decided = structs.replace(decided, group=group)
        if type(decided) is Repeated:
            self._answer_repeat(link, source, decided)
            return
        if type(decided) is Acceptance and source.is_foreign and publisher is None:
            decided = self._foreign.refusal(source.user, source.key) or decided
        self._orders.sent_again(link, source)
        if type(decided) is Rejected:
            self._refuse(link, source, decided.reason, decided.limit)
            return
        assert type(decided) is Acceptance
        decentralised = (
            self._decentralised if self._decentralised is not None and self._decentralised.has(event.subject) else None
        )
        if decentralised is not None and (
            rejected := self._unadvertised(link, source, event) or decentralised.refusal(event.subject)
        ):
            self._refuse(link, source, rejected.reason, rejected.limit)
            return
        self._deliver(link, source, event, decided, decentralised)

    def settle(self, link: Link) -> None:
        """Take the report of a server about its interest."""
        self._settled.settle(link.user)

    def _server_reported(self) -> None:
        """Process what has waited for the last report of a server about its interest."""
        if not len(self._held):
            return
        if not self._settled.awaited:
            self._journal.emit(InterestAwaited())
        several = self.resume()
        for waiting in {each.link: each for each in several if each.knows_waits}.values():
            if not self._held.is_from(waiting):
                self._links.send(waiting, protocol.PublishesWait(""))

    @property
    def waiting(self) -> int:
        """Return the number of publishes that wait until this leader knows who wants them, or another one leads."""
        return len(self._held)

    def resume(self) -> list[Link]:
        """Process what has waited; what still has to wait does so in the same order. Return the links that waited."""
        several = list(self._held.take())
        for waiting, message in several:
            self.publish(waiting, message)
        return [waiting for waiting, _ in several]

    def leader_changed(self, group: int) -> None:
        """Publish again, in order, what waits for the answers of the former leader of a group."""
        for link, message in self._forwarding.take_back(group):
            self.publish(link, message)

    def _waits(self, link: Link, source: Source, message: PublisherMessage, one: Offered) -> bool:
        """Return whether an event waits, or is refused, because this leader does not know yet who wants it."""
        refused = self._settled.refusal(one.event.subject)
        # A foreign domain chooses its devices, so the bound is that of its link.
        publisher = link.key if link.is_foreign else source.key
        if refused is None and not self._held.has(publisher):
            return False
        awaited = self._settled.awaited
        if awaited and not len(self._held):
            self._journal.emit(InterestAwaited(tuple(awaited)))
        if awaited and link.knows_waits and not self._held.is_from(link):
            names = " and ".join(awaited)
            reason = f"{names} {'has' if len(awaited) == 1 else 'have'} not reported yet which events to send"
            self._links.send(link, protocol.PublishesWait(protocol.shortened(reason)))
        if not self._held.add(link, publisher, len(one.encoded), message):
            reason = "too many events wait until all servers have reported which they want; try again later"
            rejected = refused or Rejected(reason, "routes_unknown")
            self._refuse(link, source, reason if awaited else rejected.reason, rejected.limit)
        return True

    def _unadvertised(self, link: Link, source: Source, event: Event) -> Rejected | None:
        if link.is_foreign:
            return self._advertisements.foreign_refusal(link, event)
        return self._advertisements.refusal(source.user, event)

    def _deliver(
        self,
        link: Link,
        source: Source,
        event: Event,
        acceptance: Acceptance,
        decentralised: DecentralisedEvents | None,
    ) -> None:
        """Record an accepted event and deliver it here; ``decentralised`` sends it to those who want it (SPEC K-04)."""
        sending = None
        if self._engine.is_for_engine(event.subject):
            sending = decentralised and decentralised.send(event, acceptance)
            self._delivery.origins.note(acceptance.id, event)
            self._answer(link, source, self._engine.accept(acceptance, sending.header if sending else b""))
            expired: list[Subscription] = []
        else:
            excluded = self._servers.excluded(source.user, is_direct=decentralised is not None)
            order = decentralised and decentralised.domain_order
            marked = order and order.marked(event, is_foreign=source.is_foreign)
            encoded = marked.encoded if marked else acceptance.event
            delivered = self._delivery.deliver(event, encoded, source.received_us, excluded)
            expired = delivered.expired
            if limit := delivered.full:
                self._refuse(link, source, f"a destination queue is full ({limit}); try again later", limit)
            else:
                acceptance = self._renumbered(acceptance)
                self._delivery.origins.note(acceptance.id, event)
                gateway = None
                if order and marked:
                    targets = order.targets(event, delivered.delivery.notified)
                    acceptance, gateway = marked.accepted(acceptance, targets), order.gateway(targets)
                sending = decentralised and decentralised.send(event, acceptance, gateway)
                self._delivery.phases.at_channel(is_sent=delivered.is_matched or bool(sending and sending.is_wanted))
                self._answer(link, source, self._write(acceptance, delivered, sending.header if sending else b""))
                self._loads.count(event.subject, acceptance, delivered.delivery)
        # What the causal order has counted as written follows its record, with nothing between.
        if decentralised and sending:
            decentralised.perform(sending.outputs)
        self._subscriptions.end_all(expired)

    def _forward(self, link: Link, source: Source, one: Offered, awaited: str | None) -> None:
        """Send an event to the server that leads its channel, or refuse it.

        One that this server accepted itself, while the channel was decentralised, gets that answer again.
        """
        if (known := self._known(one, source)) is not None:
            self._answer(link, source, known)
            return
        if link.is_server and self._moved_group(one.event.subject) is not None:
            return  # its server was sent the present leader before, and publishes it there
        if awaited is not None:
            self._refuse(link, source, OUT_OF_TURN, awaited)
            return
        self._orders.sent_again(link, source)
        if (rejected := self._forwarding.refusal(link, source, one, self._conditions)) is not None:
            self._refuse(link, source, rejected.reason, rejected.limit)
            return
        self._forwarding.forward(link, source, one)

    def _publisher(self, source: Source, subject: str) -> PublisherRow | None:
        """Return the row of a publisher for the model of a channel."""
        if (group := self._moved_group(subject)) is not None:
            return self._state.groups.publisher(group, source.key)
        is_decentralised = self._decentralised is not None and self._decentralised.has(subject)
        return self._state.publishers.get(decentralised_key(source.key) if is_decentralised else source.key)

    def _moved_group(self, subject: str) -> int | None:
        """Return the group of an ordered channel if that has moved, None otherwise."""
        if self._channels is None or not self._state.groups.rows:
            return None
        group = self._channels.ordered_group(subject)
        return group if group is not None and self._state.groups.has_moved(group) else None

    def _known(self, one: Offered, source: Source) -> EventId | None:
        """Return the id that an event has, whichever model its channel had when it was accepted; None if unknown."""
        for key in (source.key, decentralised_key(source.key)):
            if (found := accepted_as(one, source, self._state.publishers.get(key), self._state.identity)) is not None:
                return found
        return None

    def _renumbered(self, acceptance: Acceptance) -> Acceptance:
        """Return ``acceptance`` with the next id: the check of full queues may have written drops."""
        state = self._state
        return acceptance if acceptance.id.number == state.offset else structs.replace(acceptance, id=state.next_id)

    def _write(self, acceptance: Acceptance, delivered: Delivered, causal: bytes) -> EventId:
        """Write the record and send what the windows allow; return the event's id."""
        delivery, at_us = delivered.delivery, self._state.wall_us
        published = records.Published(at_us=at_us, acceptance=acceptance, delivery=delivery, causal=causal)
        self._delivery.write(delivered, published)
        return acceptance.id

    def _source(self, link: Link, message: PublisherMessage) -> Source:
        """Return the identifier of an event by its publisher: the device of the link, or the one that is named."""
        number, key = message.number, link.key
        if type(message) is protocol.Publish:
            outbox, received_us = message.outbox, self._conditions.received_us
            is_outbox = outbox is not None
            epoch = self._state.devices[key].epoch if outbox is None else outbox
            key = publisher_key(key, outbox=is_outbox)
            return Source(link.user, link.device, epoch, number, is_outbox, key, number, received_us)
        assert type(message) is protocol.PublishFor
        user, device, is_outbox = message.user, message.device, message.is_outbox
        key = publisher_key(device_key(user, device), outbox=is_outbox)
        return Source(
            user,
            device,
            message.epoch,
            number,
            is_outbox,
            key,
            message.request,
            message.received_us,
            is_forwarded=True,
            is_foreign=self._servers.is_foreign(user),
        )

    def _answer_repeat(self, link: Link, source: Source, repeated: Repeated) -> None:
        if repeated.id is None:
            self._refuse(link, source, "this event was refused, or accepted too long ago to be remembered")
        else:
            self._answer(link, source, repeated.id)

    def _answer(self, link: Link, source: Source, identity: EventId) -> None:
        self._orders.accepted(link, source)
        self._links.send(link, protocol.PublishAccepted(source.request, identity, source.is_outbox))

    def _refuse(self, link: Link, source: Source, reason: str, limit: str | None = None) -> None:
        self._orders.refused(link, source, limit)
        self._links.send(link, protocol.PublishRefused(source.request, reason, limit, source.is_outbox))
