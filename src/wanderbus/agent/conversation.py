"""The agent's side of the application protocol, over however many connections it takes (DESIGN 5.2, 5.5).

What was said and not yet answered is said again on every new connection, in order; what is heard twice is
passed on once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wanderbus.agent.lifetimes import Decision, Lifetimes
from wanderbus.agent.losses import Lately
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
from wanderbus.agent.outbox import passes
from wanderbus.broker import presentation, protocol
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Gap, Position
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
        self._lately = Lately()
        self._keep = properties.keep
        self._lifetimes = Lifetimes(properties.on_ended)
        self._publishes: dict[tuple[bool, int], bytes] = {}
        """By whether they are of the outbox, and number."""
        self._held_up: PublishSettled | None = None
        """The lowest event of the outbox that was refused for the time being; none behind it may be said anew."""
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
        publishes = (payload for key, payload in self._publishes.items() if not self._would_overtake(key))
        return [protocol.encode(attach), *self._requests.values(), *publishes]

    def _would_overtake(self, publish: tuple[bool, int]) -> bool:
        """Return whether an event of the outbox before this one has to be said first (SPEC X25)."""
        outbox, number = publish
        return outbox and self._held_up is not None and number > self._held_up.number

    def say(self, given: PublishEvent | Ask | Took) -> bytes | None:
        """Return the message for one request of the application, None if it adds nothing."""
        match given:
            case PublishEvent(number=number, event=event, outbox=outbox):
                payload = protocol.encode(protocol.Publish(number, event, outbox))
                self._publishes[outbox is not None, number] = payload
                if outbox is not None and self._held_up and number <= self._held_up.number:
                    self._held_up = None
            case Ask(message=message):
                self._lifetimes.asked(message)
                payload = self._requests[message.request] = protocol.encode(message)
            case Took(number=number, epoch=epoch):
                if epoch not in (None, self._epoch) or number <= self._taken:
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
            case protocol.PublishRefused(number=number, outbox=outbox) as refused:
                known = self._publishes.pop((outbox, number), None)
                return [self._refused(refused)] if known else []
            case protocol.RequestRefused(request=0, reason=reason):
                return [ConnectRefused("attachment", None, reason)]
            case protocol.Attachment(epoch=epoch, taken=taken):
                return self._attached(epoch, taken)
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

    def _refused(self, refused: protocol.PublishRefused) -> PublishSettled:
        number, outbox, limit = refused.number, refused.outbox, refused.limit
        settled = PublishSettled(number, None, refused.reason, outbox=outbox, limit=limit)
        if outbox and passes(limit) and (self._held_up is None or number < self._held_up.number):
            self._held_up = settled
        return settled

    def _attached(self, epoch: int, taken: int) -> list[Output]:
        """Another epoch is another stream: numbers begin anew.

        What the broker calls taken is so for us too: it may ask again, once we were removed and have come back.
        """
        if epoch != self._epoch:
            self._epoch, self._received, self._taken = epoch, taken, taken
            self._lately.clear()
        self._received = max(self._received, taken)
        self._taken = max(self._taken, taken)
        self._keep = True
        self._of_its_own_accord(self._lifetimes.attached())
        return self._overtaking()

    def _overtaking(self) -> list[Output]:
        """Settle what was not said anew, lest it overtake another event of the outbox, with the answer to that one."""
        numbers = [number for outbox, number in self._publishes if self._would_overtake((outbox, number))]
        if self._held_up is None or not numbers:
            return []
        for number in numbers:
            del self._publishes[True, number]
        return [msgspec.structs.replace(self._held_up, number=number) for number in numbers]

    def _notified(self, notify: protocol.Notify) -> list[Output]:
        self._check_attached()
        if notify.number <= self._received:
            return []
        notification = presentation.read(notify, self._epoch)
        self._received = notify.number
        self._lately.notified(notify)
        return [Arrived(notification)]

    def _gap(self, gap: protocol.NotifyGap) -> list[Output]:
        """Numbers that were received before they were dropped are not missing."""
        self._check_attached()
        first, last = max(gap.first, self._received + 1), gap.last
        if last < first:
            return []
        lost = self._lately.missing(gap, self._received)
        reason = ", ".join(dict.fromkeys(loss.reason for loss in lost)) if gap.lost else gap.reason
        self._received = last
        return [Arrived(Gap(last - first + 1, reason, Position(self._epoch, last), lost))]

    def _check_attached(self) -> None:
        if not self._epoch:
            raise RemoteProtocolError("a notification came before the attachment", None)
