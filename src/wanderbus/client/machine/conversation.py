"""The agent's side of the application protocol, across successive connections (DESIGN 5.2, 5.5).

Unanswered messages are sent again on every new connection, in order. Duplicates from the broker are discarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.answer_checks import Question
from wanderbus.client.machine.lifetimes import MISSED, Lifetimes
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    ConnectRefused,
    EndReading,
    ItemArrived,
    MembershipLost,
    PublishesDelayed,
    PublishEvent,
    PublishSettled,
    ReadTogether,
    RequestSettled,
    ServerKnown,
    StartReading,
    StreamReplaced,
    SubscriptionNotRead,
    SubscriptionOver,
)
from wanderbus.client.machine.subscription_readers import SubscriptionReaders, Unacknowledged, read_message
from wanderbus.client.machine.subscription_records import Decision, SubscriptionReader
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import HELD_BACK, Gap, Loss, Position, too_large
from wanderbus.limits import EVENT_BYTES_MAX
from wanderbus.machine import Output
from wanderbus.protocol import presentation
from wanderbus.protocol.domains import GroupLeaders, GroupPublishers
from wanderbus.protocol.outbox_order import OutboxOrder, is_temporary
from wanderbus.protocol.session_stream import SessionStream

if TYPE_CHECKING:
    from wanderbus.client.machine.publisher_filter import PublisherFilter

_PUBLISH_BYTES: Final = 32
"""Most bytes of a publish beside its event."""

ReaderMessage = StartReading | ReadTogether | EndReading | Acknowledge
"""Inputs about readers of subscriptions."""


class Conversation:
    """Converts the application's requests into messages, and the broker's messages into reports.

    :meth:`take_unsent` returns messages that it sends without a request, about subscriptions that end and about
    filters. :meth:`take_held_back` returns the responses to publishes that are not sent.
    """

    def __init__(self, properties: AgentProperties) -> None:
        self._now = 0.0
        self._properties = properties
        self._filter: PublisherFilter | None = None
        if properties.publisher_filtering:
            # Only agents that hold back events load it.
            from wanderbus.client.machine.publisher_filter import PublisherFilter

            self._filter = PublisherFilter()
        self._held_back: list[Output] = []
        self._stream = SessionStream()
        self._resume = properties.resume
        self._keep = properties.keep
        self._readers = SubscriptionReaders()
        self._unacknowledged = Unacknowledged(properties.untaken_bytes_max)
        self._reads: dict[int, tuple[int, Position | None]] = {}
        """By request for a subscription to be read at once: the handle, and the position to resume from."""
        self._lifetimes = Lifetimes(properties.on_ended)
        self._advertisements = _Advertisements()
        self._publishes: dict[tuple[bool, int], bytes] = {}
        """Unanswered publishes by number; the first part of the key is True for the outbox."""
        self._order: OutboxOrder[bool, PublishSettled] = OutboxOrder()
        """Temporarily refused event of the outbox (True): no later one may be sent again before it."""
        self._refused_for_now: set[int] = set()
        """Numbers of the outbox whose last answer was a temporary refusal."""
        self._requests: dict[int, Question] = {}
        self._unsent: list[bytes] = []
        self._was_at = properties.was_at
        """Server of a domain that knows what this device has published; "" if none has said so."""
        self._event_bytes_max: int | None = None
        """Bound of the broker; None before its attachment on this connection."""
        self._withheld: list[tuple[bool, int]] = []
        """Publishes that wait for the attachment: the first may be too large for a message, and the rest follow it."""

    @property
    def unanswered(self) -> int:
        """Return the number of publishes and requests without a response."""
        return len(self._publishes) + len(self._requests)

    @property
    def subscribed_at(self) -> str:
        """Return the server of a domain at which this agent has subscriptions; "" if it has none, or nobody said so."""
        return self._was_at if self._lifetimes.has_any else ""

    @property
    def attached(self) -> bool:
        """Return whether the broker has confirmed the attachment."""
        return self._stream.is_known

    def begin_step(self, now: float) -> None:
        """Begin a step at monotonic second ``now``; only leases of filters need it."""
        self._now = now

    def opening(self, *, is_attached: bool = False) -> list[bytes]:
        """Return the first messages of a new connection, or of one on which the broker has answered the first."""
        for question in self._requests.values():
            question.forget_parts()
        self.forget_filters()
        given, stream = self._properties, self._stream
        how = self._keep, given.keep_queue, given.publisher_filtering
        attach = protocol.Attach(
            given.epoch, given.session, self._resume, *how, stream.last, stream.seen, True, self._was_at
        )
        readers = [each for each in self._readers.all() if not each.is_finished]
        read = [protocol.encode(read_message(readers, stream.position))] if readers else []
        if not is_attached:
            self._event_bytes_max = None
        self._withheld.clear()
        now = [(key, payload) for key, payload in self._publishes.items() if not self._would_overtake(key)]
        publishes = [payload for key, payload in now if self._may_send(key, payload)]
        requests = (question.payload for question in self._requests.values())
        return [protocol.encode(attach), *read, *self._advertisements.messages(), *requests, *publishes]

    def _may_send(self, publish: tuple[bool, int], payload: bytes) -> bool:
        """Return whether a publish may be sent now; withhold it before the attachment, then refuse a too large one."""
        is_large = len(payload) > EVENT_BYTES_MAX + _PUBLISH_BYTES
        if self._event_bytes_max is None and (is_large or self._withheld):
            self._withheld.append(publish)
            return False
        if is_large and len(payload) - _PUBLISH_BYTES > (bound := self._event_bytes_max or 0):
            outbox, number = publish
            message = protocol.decode_from_agent(payload)
            assert isinstance(message, protocol.Publish)
            error = too_large(protocol.size_of(message.event), bound)
            self._publishes.pop(publish, None)
            self._held_back.append(PublishSettled(number, None, str(error), outbox=outbox, limit=error.limit))
            return False
        return True

    def _send_withheld(self) -> list[Output]:
        """Send what waited for the attachment; return the refusals of what is too large."""
        withheld, self._withheld = self._withheld, []
        for key in withheld:
            payload = self._publishes.get(key)
            if payload is not None and not self._would_overtake(key) and self._may_send(key, payload):
                self._unsent.append(payload)
        return self.take_held_back()

    def _would_overtake(self, publish: tuple[bool, int]) -> bool:
        """Return whether an earlier event of the outbox has to be sent first (SPEC X25)."""
        return self._order.before(*publish) is not None

    def send(self, given: PublishEvent | AskBroker | ReaderMessage) -> bytes | None:
        """Return the message for one input of the application, None if none is needed."""
        match given:
            case PublishEvent() if self._filter is not None and self._is_held_back(given, self._filter):
                return None
            case PublishEvent(number=number, event=event, outbox=outbox):
                payload = protocol.encode_publish(number, event, outbox)
                self._publishes[outbox is not None, number] = payload
                self._order.sent_again(outbox is not None, number)
                if not self._may_send((outbox is not None, number), payload):
                    return None
            case AskBroker():
                payload = self._ask(given)
            case ReadTogether(subscriptions=subscriptions):
                payload = protocol.encode(self._read_together(subscriptions))
            case _:
                message = self._reader_message(given)
                return None if message is None else protocol.encode(message)
        return payload

    def _is_held_back(self, publish: PublishEvent, filter: PublisherFilter) -> bool:
        """Return whether nobody wants an event; settle it then.

        An event of the outbox that was refused temporarily has to be sent again, since its broker accepts no later one
        before it; each leader of channels may wait for another one. While an event is held up, all are sent.
        """
        if publish.outbox is not None and (self._order.has(True) or publish.number in self._refused_for_now):
            return False
        is_held_back = filter.holds_back(publish.event, publish.suspended_s, self._now)
        if is_held_back:
            self._held_back.append(PublishSettled(publish.number, HELD_BACK, outbox=publish.outbox is not None))
        return is_held_back

    def take_held_back(self) -> list[Output]:
        """Return the responses to publishes that were not sent since the last call."""
        held_back, self._held_back = self._held_back, []
        return held_back

    def forget_filters(self) -> None:
        """Send every event until the broker has answered with filters again: the connection is away, or new."""
        if self._filter is not None:
            self._filter.forget()

    def end_filtering(self) -> None:
        """Send every event from now on: the agent is leaving."""
        if self._filter is not None:
            self._filter.end()

    def _ask(self, given: AskBroker) -> bytes:
        request = given.message
        if isinstance(request, protocol.Leave):
            self.end_filtering()
        if given.reads and isinstance(request, protocol.Subscribe):
            handle = self._readers.next_handle()
            self._reads[request.request] = handle, request.resume
            request = msgspec.structs.replace(request, reader=handle)
        self._lifetimes.asked(request)
        self._advertisements.asked(request)
        payload = protocol.encode(request)
        self._requests[request.request] = Question(request, payload)
        return payload

    def _read_together(self, subscriptions: tuple[str, ...]) -> protocol.Read:
        group = self._readers.next_handle()
        started = [self._readers.start(each, self._readers.next_handle(), group=group) for each in subscriptions]
        return read_message(started, self._stream.position)

    def _reader_message(self, given: StartReading | EndReading | Acknowledge) -> protocol.ReaderMessage | None:
        reader = self._readers.get(given.subscription)
        match given:
            case StartReading(subscription=subscription, resume=resume):
                if reader is not None:
                    return None
                taken = self._stream.number(resume)
                started = self._readers.start(subscription, self._readers.next_handle(), taken)
                return read_message([started], self._stream.position)
            case EndReading(subscription=subscription):
                stopped = self._readers.stop(subscription)
                self._unacknowledged.discard(subscription)
                return None if stopped is None else protocol.StopReading(stopped.handle)
            case Acknowledge(position=position):
                if reader is None:
                    return None
                self._unacknowledged.acknowledged(reader.subscription, position)
                return self._taken(reader, self._stream.number(position))

    def _taken(self, reader: SubscriptionReader, number: int) -> protocol.NotifyAck | None:
        """Return the acknowledgement up to ``number``, and of repeated events behind it; None if there is no news."""
        if reader.repeatable is not None:
            following = self._unacknowledged.first(reader.subscription)
            number = max(number, reader.received if following is None else following.number - 1)
        if number <= reader.taken:
            return None
        reader.taken = number
        return protocol.NotifyAck(reader.handle, number)

    def take_unsent(self) -> list[bytes]:
        """Return messages caused by received ones, each once; :meth:`opening` repeats those without a response."""
        unsent, self._unsent = self._unsent, []
        if self._filter is not None:
            unsent += map(protocol.encode, self._filter.take_unsent())
        return unsent

    def give_up(self, given: PublishEvent | AskBroker) -> bool:
        """Stop waiting for the response to ``given``; return whether it was still open."""
        match given:
            case PublishEvent(number=number, outbox=outbox):
                return self._publishes.pop((outbox is not None, number), None) is not None
            case AskBroker(message=message):
                self._reads.pop(message.request, None)
                self._lifetimes.gave_up(message.request)
                return self._requests.pop(message.request, None) is not None

    def receive(self, payload: bytes) -> list[Output]:
        """Process a message of the broker; return the reports. :class:`RemoteProtocolError` if it is malformed."""
        match protocol.decode_from_broker(payload):
            case protocol.Notify() as notify:
                return self._notified(notify, len(payload))
            case protocol.NotifyGap() as gap:
                return self._gap(gap, len(payload))
            case protocol.PublishAccepted(number=number, id=identity, outbox=outbox):
                known = self._publishes.pop((outbox, number), None)
                self._stream.confirmed(identity)
                if outbox:
                    self._refused_for_now.discard(number)
                return [PublishSettled(number, identity, outbox=outbox)] if known else []
            case protocol.PublishRefused(number=number, outbox=outbox) as refused:
                known = self._publishes.pop((outbox, number), None)
                return [self._refused(refused)] if known else []
            case protocol.PublishesWait(reason=reason, server=server):
                return [*self._at(server or self._was_at), PublishesDelayed(reason)]
            case protocol.RequestRefused(request=0, reason=reason, limit=limit):
                return [ConnectRefused("attachment", None, reason, limit)]
            case protocol.Attachment(removed=removed) as attachment:
                lost: list[Output] = [MembershipLost(removed)] if removed else []
                return lost + self._attached(attachment)
            case protocol.NotRead(subscription=subscription, waiting=waiting):
                return [] if self._readers.get(subscription.id) else [SubscriptionNotRead(subscription, waiting)]
            case protocol.SubscriptionEnded() as ended:
                if ended.reason == protocol.TRANSFERRED:
                    self._readers.finish(ended.subscription.id)
                return self._carry_out(self._lifetimes.ended(ended))
            case protocol.RequestRefused(request=request) as refusal:
                asked = self._requests.pop(request, None)
                return self._settled(RequestSettled(request, (), refusal)) if asked else []
            case protocol.Filters() as filters:
                if self._filter is not None:
                    self._filter.arrived(filters, self._now)
                return []
            case protocol.NotifyServer() | GroupLeaders() | GroupPublishers():
                raise RemoteProtocolError("the broker sent a message for a server, and this is an agent", None)
            case answer:
                return self._answered(answer, len(payload))

    def _answered(self, answer: protocol.Done | protocol.Listing, size: int) -> list[Output]:
        """Report the response to a request once its last part has arrived."""
        question = self._requests.get(answer.request)
        if question is None or (whole := question.whole(answer, size)) is None:
            return []
        del self._requests[answer.request]
        self._advertisements.answered(question.message, question.payload)
        if isinstance(answer, protocol.Listing):
            return self._settled(RequestSettled(answer.request, (), rows=whole, next=answer.next))
        if isinstance(question.message, protocol.Subscribe):
            for subscription in whole:
                self._stream.subscribed(subscription)
        return self._settled(RequestSettled(answer.request, whole))

    def _settled(self, settled: RequestSettled) -> list[Output]:
        """Report a response to the application, unless the request was made by :class:`Lifetimes`."""
        if (reads := self._reads.pop(settled.request, None)) is not None:
            self._start_reading(settled, *reads)
        outputs = self._carry_out(self._lifetimes.settled(settled))
        return outputs if settled.request < 0 else [settled, *outputs]

    def _start_reading(self, settled: RequestSettled, handle: int, resume: Position | None) -> None:
        """Start reading the new subscription, unless it is being read; the broker follows the same rule."""
        for subscription in settled.subscriptions:
            if self._readers.get(subscription.id) is None:
                self._readers.start(subscription.id, handle, self._stream.number(resume))

    def _carry_out(self, decided: Decision) -> list[Output]:
        """Enqueue the messages of a decision about lifetimes; return its reports."""
        for message in decided.messages:
            question = self._requests[message.request] = Question(message, protocol.encode(message))
            self._unsent.append(question.payload)
        gaps = [gap for over in decided.reports if (gap := self._succeed(over)) is not None]
        return [*decided.reports, *gaps]

    def _succeed(self, over: SubscriptionOver) -> Output | None:
        """Continue with the successor of an ended subscription, if that one was being read.

        If its end was found by a query, return a gap: nobody knows which events came between the two.
        """
        if over.successor is None:
            return None
        was_read = self._readers.get(over.subscription.id) is not None
        reader = self._readers.succeed(over.subscription.id, over.successor.id)
        if reader is not None:
            self._unacknowledged.succeed(over.subscription.id, over.successor.id)
            self._unsent.append(protocol.encode(read_message([reader], self._stream.position)))
        reader = self._readers.get(over.successor.id)
        if not was_read or reader is None or over.reason != MISSED or over.successor.id == over.subscription.id:
            return None
        lost = Loss(over.successor.id, MISSED, 1)
        return ItemArrived(Gap(1, MISSED, self._stream.position(reader.received), (lost,)), (over.successor.id,))

    def _refused(self, refused: protocol.PublishRefused) -> PublishSettled:
        number, outbox, limit = refused.number, refused.outbox, refused.limit
        settled = PublishSettled(number, None, refused.reason, outbox=outbox, limit=limit)
        if outbox and is_temporary(limit):
            self._refused_for_now.add(number)
            self._order.refused(outbox, number, settled)
        elif outbox:
            self._refused_for_now.discard(number)
        return settled

    def _attached(self, attachment: protocol.Attachment) -> list[Output]:
        """Continue from the known positions, as far as the broker's stream is the one in which they were given."""
        before = self._stream.last
        self._readers.keep(self._stream.replaced_by(attachment).in_common)
        common = self._stream.number(self._resume)
        self._resume = self._stream.position(common) if common else None
        self._keep = True
        self._carry_out(self._lifetimes.attached())
        self._event_bytes_max = attachment.event_bytes_max
        former = "" if attachment.server == self._was_at else self._was_at
        known = self._at(attachment.server or self._was_at)
        settled = [*known, *self._overtaking(), *self._send_withheld()]
        if before is None or self._stream.received == before.number:
            return settled
        return [StreamReplaced(before, self._stream.received, former), *settled]

    def _at(self, server: str) -> list[Output]:
        """Note the server that knows what this device has published; report it if it is another one."""
        if server == self._was_at:
            return []
        self._was_at = server
        return [ServerKnown(server)]

    def _overtaking(self) -> list[Output]:
        """Settle publishes that were withheld to keep the outbox's order, with the refusal of the held-up event."""
        refusals = {each: refusal for each in self._publishes if (refusal := self._order.before(*each)) is not None}
        for each in refusals:
            del self._publishes[each]
        return [msgspec.structs.replace(refusal, number=number) for (_, number), refusal in refusals.items()]

    def _notified(self, notify: protocol.Notify, size: int) -> list[Output]:
        self._check_attached()
        readers = self._readers.of(notify.readers, notify.subscriptions)
        if all(notify.number <= reader.received for reader in readers):
            return []
        position = self._stream.position(notify.number)
        notification = presentation.read(notify, position.epoch)
        new: list[str] = []
        for reader in readers:
            if notify.number <= reader.received:
                continue
            if is_new := not reader.has_had(notify.id):
                self._unacknowledged.add(reader.subscription, position, size)
                new.append(reader.subscription)
            reader.notified(notify.number, notify.id)
            if not is_new and (taken := self._taken(reader, reader.taken)) is not None:
                self._unsent.append(protocol.encode(taken))
        self._stream.arrived(notify.number)
        return [ItemArrived(notification, tuple(new))] if new else []

    def _gap(self, gap: protocol.NotifyGap, size: int) -> list[Output]:
        """Report a gap; numbers that were received before the broker discarded them are not missing."""
        self._check_attached()
        handles = () if gap.reader is None else (gap.reader,)
        position = self._stream.position(gap.last)
        arrived: list[Output] = []
        for reader in self._readers.of(handles, dict.fromkeys(loss.subscription for loss in gap.lost)):
            is_new = gap.last > reader.received
            if is_new:
                self._unacknowledged.add(reader.subscription, position, size)
            lost = reader.missing(gap)
            if is_new:
                reasons = ", ".join(dict.fromkeys(loss.reason for loss in lost or gap.lost))
                missing = Gap(sum(loss.count for loss in lost), reasons, position, lost)
                arrived.append(ItemArrived(missing, (reader.subscription,)))
        self._stream.arrived(gap.last)
        return arrived

    def _check_attached(self) -> None:
        if not self._stream.is_known:
            raise RemoteProtocolError("a notification arrived before the attachment", None)


class _Advertisements:
    """Answered advertisements that were not withdrawn, by content: every connection repeats them (SPEC A-17).

    A broker that has them already answers at once. Another broker, which a device can reach after a move, gets them
    before the next events.
    """

    def __init__(self) -> None:
        self._payloads: dict[tuple[str, str, str], bytes] = {}

    def asked(self, request: protocol.AgentMessage) -> None:
        """Forget an advertisement that the application withdraws."""
        if isinstance(request, protocol.Withdraw):
            self._payloads.pop((request.subject, request.expression, request.language), None)

    def answered(self, request: protocol.AgentMessage, payload: bytes) -> None:
        """Remember an advertisement that the broker has confirmed; ``payload`` is the message."""
        if isinstance(request, protocol.Advertise):
            self._payloads[request.subject, request.expression, request.language] = payload

    def messages(self) -> list[bytes]:
        """Return the messages for a new connection; nobody waits for their answers."""
        return list(self._payloads.values())
