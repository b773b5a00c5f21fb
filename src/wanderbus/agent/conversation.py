"""The agent's side of the application protocol, over however many connections it takes (DESIGN 5.2, 5.5).

What was said and not yet answered is said again on every new connection, in order; what is heard twice is
passed on once.
"""

from __future__ import annotations

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
from wanderbus.subscription import Subscription


class Conversation:
    """Turns the application's requests into messages, and the broker's messages into reports."""

    def __init__(self, properties: AgentProperties) -> None:
        self._properties = properties
        self._epoch = properties.resume.epoch if properties.resume else 0
        self._received = properties.resume.number if properties.resume else 0
        self._taken = self._received
        self._keep = properties.keep
        self._publishes: dict[int, bytes] = {}
        self._requests: dict[int, bytes] = {}
        self._parts: dict[int, tuple[Subscription, ...]] = {}
        """Of answers that come in parts: what has come on this connection."""

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
        attach = protocol.Attach(self._properties.epoch, self._properties.session, resume, self._keep)
        return [protocol.encode(attach), *self._requests.values(), *self._publishes.values()]

    def say(self, given: PublishEvent | Ask | Took) -> bytes | None:
        """Return the message for one request of the application, None if it adds nothing."""
        match given:
            case PublishEvent(number=number, event=event):
                payload = self._publishes[number] = protocol.encode(protocol.Publish(number, event))
            case Ask(message=message):
                payload = self._requests[message.request] = protocol.encode(message)
            case Took(number=number):
                if number <= self._taken:
                    return None
                self._taken = number
                payload = protocol.encode(protocol.Take(number))
        return payload

    def give_up(self, given: PublishEvent | Ask) -> bool:
        """Wait no longer for the answer to ``given``; return whether it was still to come."""
        match given:
            case PublishEvent(number=number):
                return self._publishes.pop(number, None) is not None
            case Ask(message=message):
                self._parts.pop(message.request, None)
                return self._requests.pop(message.request, None) is not None

    def hear(self, payload: bytes) -> list[Output]:
        """Return what a message of the broker means; :class:`RemoteProtocolError` if it means nothing."""
        match protocol.decode_from_broker(payload):
            case protocol.Notify() as notify:
                return self._notified(notify)
            case protocol.NotifyGap() as gap:
                return self._gap(gap)
            case protocol.PublishAccepted(number=number, id=identity):
                known = self._publishes.pop(number, None)
                return [PublishSettled(number, identity)] if known else []
            case protocol.PublishRefused(number=number, reason=reason):
                known = self._publishes.pop(number, None)
                return [PublishSettled(number, None, reason)] if known else []
            case protocol.Done() as done:
                return self._done(done)
            case protocol.RequestRefused(request=0, reason=reason):
                return [ConnectRefused("attachment", None, reason)]
            case protocol.RequestRefused(request=request) as refusal:
                known = self._requests.pop(request, None)
                return [RequestSettled(request, (), refusal)] if known else []
            case protocol.SubscriptionEnded() | protocol.Listing():
                return []
            case protocol.Attachment(epoch=epoch, taken=taken):
                self._attached(epoch, taken)
                return []

    def _done(self, done: protocol.Done) -> list[Output]:
        if done.request not in self._requests:
            return []
        subscriptions = self._parts.pop(done.request, ()) + done.subscriptions
        if done.more:
            self._parts[done.request] = subscriptions
            return []
        del self._requests[done.request]
        return [RequestSettled(done.request, subscriptions)]

    def _attached(self, epoch: int, taken: int) -> None:
        """Another epoch is another stream: numbers begin anew."""
        if epoch != self._epoch:
            self._epoch, self._received, self._taken = epoch, taken, taken
        self._received = max(self._received, taken)
        self._keep = True

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
