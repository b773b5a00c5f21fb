"""The agent's side of the application protocol, over however many connections it takes (DESIGN 5.2, 5.5).

What was said and not yet answered is said again on every new connection, in order; what is heard twice is
passed on once.
"""

from __future__ import annotations

from typing import Any

from wanderbus.agent.lifetimes import Decision, Lifetimes
from wanderbus.agent.messages import (
    AgentProperties,
    Arrived,
    Ask,
    ConnectRefused,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    Took,
)
from wanderbus.broker import protocol
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Gap, Notification, Position
from wanderbus.machine import Output


class Conversation:
    """Turns the application's requests into messages, and the broker's messages into reports.

    What is said of its own accord, about subscriptions that end, is found in :meth:`unsaid`.
    """

    def __init__(self, properties: AgentProperties) -> None:
        self._properties = properties
        self._epoch = properties.resume.epoch if properties.resume else 0
        self._received = properties.resume.number if properties.resume else 0
        self._taken = self._received
        self._keep = properties.keep
        self._lifetimes = Lifetimes(properties.on_ended)
        self._publishes: dict[tuple[bool, int], bytes] = {}
        """By whether they are of the outbox, and number."""
        self._requests: dict[int, bytes] = {}
        self._parts: dict[int, tuple[Any, ...]] = {}
        """Of answers that come in parts: what has come on this connection."""
        self._unsaid: list[bytes] = []

    @property
    def unanswered(self) -> int:
        """Return how many publishes and requests wait for an answer."""
        return len(self._publishes) + len(self._requests)

    @property
    def attached(self) -> bool:
        """Return whether the broker has said which stream it goes on with."""
        return self._epoch != 0

    def opening(self) -> list[bytes]:
        """Return what to say first on a new connection."""
        self._parts.clear()
        resume = Position(self._epoch, self._taken) if self._epoch else None
        keep_queue = self._properties.keep_queue
        attach = protocol.Attach(self._properties.epoch, self._properties.session, resume, self._keep, keep_queue)
        return [protocol.encode(attach), *self._requests.values(), *self._publishes.values()]

    def say(self, given: PublishEvent | Ask | Took) -> bytes | None:
        """Return the message for one request of the application, None if it adds nothing."""
        match given:
            case PublishEvent(number=number, event=event, outbox=outbox):
                payload = protocol.encode(protocol.Publish(number, event, outbox))
                self._publishes[outbox is not None, number] = payload
            case Ask(message=message):
                self._lifetimes.asked(message)
                payload = self._requests[message.request] = protocol.encode(message)
            case Took(number=number):
                if number <= self._taken:
                    return None
                self._taken = number
                payload = protocol.encode(protocol.Take(number))
        return payload

    def unsaid(self) -> list[bytes]:
        """Return what is to be said because of what was heard; it is returned once, and repeated by :meth:`opening`."""
        unsaid, self._unsaid = self._unsaid, []
        return unsaid

    def give_up(self, given: PublishEvent | Ask) -> bool:
        """Wait no longer for the answer to ``given``; return whether it was still to come."""
        match given:
            case PublishEvent(number=number, outbox=outbox):
                return self._publishes.pop((outbox is not None, number), None) is not None
            case Ask(message=message):
                self._parts.pop(message.request, None)
                self._lifetimes.gave_up(message.request)
                return self._requests.pop(message.request, None) is not None

    def hear(self, payload: bytes) -> list[Output]:
        """Return what a message of the broker means; :class:`RemoteProtocolError` if it means nothing."""
        match protocol.decode_from_broker(payload):
            case protocol.Notify() as notify:
                return self._notified(notify)
            case protocol.NotifyGap() as gap:
                return self._gap(gap)
            case protocol.PublishAccepted(number=number, id=identity, outbox=outbox):
                known = self._publishes.pop((outbox, number), None)
                return [PublishSettled(number, identity, outbox=outbox)] if known else []
            case protocol.PublishRefused(number=number, reason=reason, limit=limit, outbox=outbox):
                known = self._publishes.pop((outbox, number), None)
                return [PublishSettled(number, None, reason, outbox=outbox, limit=limit)] if known else []
            case protocol.RequestRefused(request=0, reason=reason):
                return [ConnectRefused("attachment", None, reason)]
            case protocol.Attachment(epoch=epoch, taken=taken):
                self._attached(epoch, taken)
                return []
            case answer:
                return self._answered(answer)

    def _answered(
        self, answer: protocol.Done | protocol.Listing | protocol.RequestRefused | protocol.SubscriptionEnded
    ) -> list[Output]:
        match answer:
            case protocol.SubscriptionEnded():
                return self._of_its_own_accord(self._lifetimes.ended(answer))
            case protocol.RequestRefused(request=request) if self._requests.pop(request, None):
                return self._settled(RequestSettled(request, (), answer))
            case protocol.Done(request=request, subscriptions=part, more=more) if request in self._requests:
                whole = self._whole(request, part, more=more)
                return [] if whole is None else self._settled(RequestSettled(request, whole))
            case protocol.Listing(request=request, rows=part, more=more, next=after) if request in self._requests:
                whole = self._whole(request, part, more=more)
                return [] if whole is None else self._settled(RequestSettled(request, (), rows=whole, next=after))
        return []

    def _whole(self, request: int, part: tuple[Any, ...], *, more: bool) -> tuple[Any, ...] | None:
        """Return the answer to ``request`` once its last part is here."""
        whole = self._parts.pop(request, ()) + part
        if more:
            self._parts[request] = whole
            return None
        del self._requests[request]
        return whole

    def _settled(self, settled: RequestSettled) -> list[Output]:
        """Report an answer to the application; what was asked by ourselves is not for it."""
        outputs = self._of_its_own_accord(self._lifetimes.settled(settled))
        return outputs if settled.request < 0 else [settled, *outputs]

    def _of_its_own_accord(self, decided: Decision) -> list[Output]:
        for message in decided.messages:
            payload = self._requests[message.request] = protocol.encode(message)
            self._unsaid.append(payload)
        return list(decided.reports)

    def _attached(self, epoch: int, taken: int) -> None:
        """Another epoch is another stream: numbers begin anew.

        What the broker calls taken is so for us too: it may ask again, once we were removed and have come back.
        """
        if epoch != self._epoch:
            self._epoch, self._received, self._taken = epoch, taken, taken
        self._received = max(self._received, taken)
        self._taken = max(self._taken, taken)
        self._keep = True
        self._of_its_own_accord(self._lifetimes.attached())

    def _notified(self, notify: protocol.Notify) -> list[Output]:
        self._check_attached()
        if notify.number <= self._received:
            return []
        event = protocol.decode_event(bytes(notify.event))
        self._received = notify.number
        position = Position(self._epoch, notify.number)
        return [
            Arrived(Notification(event, notify.subscriptions, position, notify.id, notify.redelivered, notify.lost))
        ]

    def _gap(self, gap: protocol.NotifyGap) -> list[Output]:
        """Numbers that were received before they were dropped are not missing."""
        self._check_attached()
        first, last = max(gap.first, self._received + 1), gap.last
        if last < first:
            return []
        self._received = last
        return [Arrived(Gap(last - first + 1, gap.reason, Position(self._epoch, last), gap.lost))]

    def _check_attached(self) -> None:
        if not self._epoch:
            raise RemoteProtocolError("a notification came before the attachment", None)
