"""Simulated device of an ordered domain: it publishes, subscribes and reads at one server, and repeats what it must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.state.rows import session_key
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    Arrived,
    Ask,
    ConnectRefused,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    StartReading,
)
from wanderbus.client.machine.outbox import Outbox
from wanderbus.event import HELD_BACK, Event, EventId, Gap
from wanderbus.simulation.domains.ordered_node import OrderedNode
from wanderbus.simulation.weeks.wire import Wire
from wanderbus.simulation.world import World
from wanderbus.subscription import Since

if TYPE_CHECKING:
    from wanderbus.machine import Output

_NOTICE_S_MAX: Final = 2.0
"""Longest time after which the device or its server notices that their link is broken."""


class Published(msgspec.Struct):
    """An event that a device has published: its stream and number there, and the moment of the first attempt."""

    uid: str
    stream: tuple[str, str, int]
    """User, device, and epoch of the life or of the outbox."""
    number: int
    event: Event
    moment: int
    accepted: EventId | None = None
    refused: str | None = None
    """Reason of a final refusal."""
    limit: str | None = None
    held_back: int = 0
    """Moment at which the device held it back, because nobody wants it; 0 if it was sent."""


class Asked(msgspec.Struct):
    """A subscription as its device knows it."""

    moment: int = 0
    """Moment of the latest answer, 0 before the first one."""
    lives: int = 1
    """Number of times that it has begun: it may be renewed after its end."""
    counted: dict[int, int] = msgspec.field(default_factory=dict)
    """Moment from which each of its lives counts."""
    ending: dict[int, int] = msgspec.field(default_factory=dict)
    """Moment of the request that ends each of its lives."""
    state: str = "live"
    """live, ending, ended, renewing, or unknown after a crash of the device."""


class OrderedDevice:
    """One device of a user, across the lives of its application; ``moment`` numbers what happens in the world."""

    def __init__(
        self,
        world: World,
        node: OrderedNode,
        user: str,
        name: str,
        delay_s: float,
        moment: Callable[[], int],
        *,
        is_filtering: bool = False,
    ) -> None:
        self.user = user
        self.name = name
        self.node = node
        self.published: dict[str, Published] = {}
        self.asked: dict[str, Asked] = {}
        """Subscriptions that it has requested, by id."""
        self.received: dict[str, dict[int, EventId]] = {}
        """Events of each subscription by number, in the order of their first arrival."""
        self.gaps: dict[str, list[int]] = {}
        """Last number of each gap, by subscription."""
        self.problems: list[str] = []
        self.lives = 0
        self.subscribed = 0
        self.refused_pasts = 0
        """Refusals of subscriptions that begin in the past."""
        self._world = world
        self._delay_s = delay_s
        self._moment = moment
        self._is_filtering = is_filtering
        self._awake_at = 0.0
        """Moment at which the present suspension ends, or the last one has ended."""
        self._suspended_s = 0.0
        self._wire: Wire | None = None
        self._conversation: Conversation
        self._requests = 0
        self._numbers = 0
        self._epoch = 0
        self._outbox_epoch = world.random.getrandbits(50) | 1
        self._stored: dict[int, str] = {}
        self._stored_last = 0
        self._outbox = Outbox()
        self._uids: dict[tuple[bool, int], str] = {}
        self._pending: dict[int, protocol.SubscriptionRequest] = {}
        self._begin()

    @property
    def is_settled(self) -> bool:
        """Return whether everything is answered."""
        return self._conversation.attached and not self._conversation.unanswered and not self._stored

    @property
    def _now(self) -> float:
        """Return the device's monotonic clock, which stands still while the device is suspended."""
        return self._world.now - self._suspended_s

    # Lives and links ------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Begin a life of the application."""
        self.lives += 1
        self._epoch = self._world.random.getrandbits(50) | 1
        self._numbers = 0
        self._uids = {key: uid for key, uid in self._uids.items() if key[0]}
        for request in self._pending.values():
            if isinstance(request, protocol.Unsubscribe | protocol.Renew):
                self.asked[request.subscription].state = "unknown"
        self._pending.clear()
        self._outbox = Outbox(self._stored)
        self._conversation = Conversation(
            AgentProperties(
                uri=self.user,
                server=("192.0.2.1", 5060),
                broker="",
                device=self.name,
                epoch=self._epoch,
                publisher_filtering=self._is_filtering,
            )
        )
        self._world.after(self._world.random.uniform(0.0, 0.3), self.connect)
        self._send_stored()

    def suspend(self, seconds: float) -> None:
        """Do nothing for a while, as a device that sleeps; what arrives meanwhile is read afterwards."""
        if self._world.now < self._awake_at:
            return

        def wake() -> None:
            self._suspended_s += seconds

        self._note("sleeps")
        self._awake_at = self._world.now + seconds
        self._world.at(self._awake_at, wake)

    def _is_deferred(self, action: Callable[[], None]) -> bool:
        """Return whether the device is suspended; then ``action`` is done when it wakes."""
        if is_suspended := self._world.now < self._awake_at:
            self._world.at(self._awake_at, action)
        return is_suspended

    def crash(self) -> None:
        """End this life, and begin another one."""
        if self._is_deferred(self.crash):
            return
        self._note("crashes")
        self._drop()
        self._begin()

    def reconnect(self) -> None:
        """Move to a new link at once."""
        self._drop()
        self.connect()

    def lose(self) -> None:
        """Break the link; each side notices later."""
        if wire := self._wire:
            wire.cut()
            self._notice_later(wire)

    def connect(self) -> None:
        """Open a link if there is none, or try again later."""
        if self._wire is not None or self._is_deferred(self.connect):
            return
        self._wire = wire = self.node.open(self.user, self.name, self._delay_s, self._receive)
        if wire is None:
            self._world.after(self._world.random.uniform(0.1, 1.0), self.connect)
            return
        wire.on_drop = lambda: self._notice_later(wire)
        for payload in self._conversation.opening():
            wire.up.send(payload)

    def server_crashed(self) -> None:
        """Notice after a while that the server is gone."""
        if wire := self._wire:
            self._notice_later(wire)

    def _notice_later(self, wire: Wire) -> None:
        def notice() -> None:
            if self._wire is wire:
                self._drop()
                self.connect()

        self._world.after(self._world.random.uniform(0.01, _NOTICE_S_MAX), notice)

    def _drop(self) -> None:
        if wire := self._wire:
            self._wire = None
            wire.cut()
            late_s = self._world.random.uniform(0.01, _NOTICE_S_MAX)
            self._world.after(late_s, lambda: self.node.close(wire.link, "the device does not answer"))

    # Application ----------------------------------------------------------------------------------------------------

    def publish(self, event: Event, *, outbox: bool) -> None:
        """Publish an event, which has a unique ``Uid``."""
        if self._is_deferred(lambda: self.publish(event, outbox=outbox)):
            return
        uid = str(event["Uid"])
        if outbox:
            self._stored_last += 1
            stream, number = (self.user, self.name, self._outbox_epoch), self._stored_last
            self._stored[number] = uid
            self._outbox.stored(number)
        else:
            self._numbers += 1
            stream, number = (self.user, self.name, self._epoch), self._numbers
        self._uids[outbox, number] = uid
        self.published[uid] = Published(uid, stream, number, event, self._moment())
        if outbox:
            self._send_stored()
        else:
            self._submit(PublishEvent(number, protocol.encode_event(event), suspended_s=self._suspended_s))

    def subscribe(self, subject: str, expression: str, since: Since | None = None) -> None:
        """Request a subscription; while the leader of its past cannot be reached, again after a while."""
        self.subscribed += 1
        request = protocol.Subscribe(
            self._request(), subject, expression, None, (), this_device_only=False, since=since
        )
        self._ask(request)

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription whose state is known."""
        if self.asked[subscription].state == "live":
            asked = self.asked[subscription]
            asked.state = "ending"
            asked.ending[asked.lives] = self._moment()
            self._ask(protocol.Unsubscribe(self._request(), subscription))

    def renew(self, subscription: str) -> None:
        """Renew a subscription that has ended."""
        asked = self.asked[subscription]
        if asked.state == "ended":
            asked.state = "renewing"
            asked.lives += 1
            self._ask(protocol.Renew(self._request(), subscription, None))

    def unsubscribe_all(self) -> None:
        """End every subscription of the session, as the server knows them."""
        session = self.node.broker.state.sessions.get(session_key(self.user, "default"))
        for identity in list(session.subscriptions) if session else ():
            self._submit(Ask(protocol.Unsubscribe(self._request(), identity)))

    def _ask(self, request: protocol.SubscriptionRequest) -> None:
        self._pending[request.request] = request
        self._submit(Ask(request, reads=isinstance(request, protocol.Subscribe)))

    def _request(self) -> int:
        self._requests += 1
        return self._requests

    def _submit(self, given: PublishEvent | Ask | StartReading | Acknowledge) -> None:
        self._conversation.begin_step(self._now)
        payload = self._conversation.send(given)
        payloads = [*([] if payload is None else [payload]), *self._conversation.take_unsent()]
        if (wire := self._wire) is not None:
            for each in payloads:
                wire.up.send(each)
        for output in self._conversation.take_held_back():
            self._reported(output)

    def _send_stored(self) -> None:
        """Publish what the outbox releases; after a refusal try again some time later."""
        outbox = self._outbox
        if self._is_deferred(lambda: self._send_stored() if self._outbox is outbox else None):
            return
        while (number := outbox.next(self._world.now)) is not None:
            data = protocol.encode_event(self.published[self._stored[number]].event)
            self._submit(PublishEvent(number, data, self._outbox_epoch, self._suspended_s))
        if (at := outbox.wake_at()) is not None:
            self._world.at(at, lambda: self._send_stored() if self._outbox is outbox else None)

    # Received messages ----------------------------------------------------------------------------------------------

    def _receive(self, link: int, payloads: Sequence[bytes]) -> None:
        if self._is_deferred(lambda: self._receive(link, payloads)):
            return
        for payload in payloads:
            if self._wire is None or self._wire.link != link:
                return
            self._conversation.begin_step(self._now)
            for output in self._conversation.receive(payload):
                self._reported(output)
            for unsent in self._conversation.take_unsent():
                self._wire.up.send(unsent)
            if not isinstance(protocol.decode_from_broker(payload), protocol.Notify | protocol.NotifyGap):
                self.read_all()

    def read_all(self) -> None:
        """Read every subscription of the session, also those that other devices have requested."""
        broker = self.node.broker
        if not self.node.alive or not self._conversation.attached:
            return
        session = broker.state.sessions.get(session_key(self.user, "default"))
        for identity in (*session.ended, *session.subscriptions) if session is not None else ():
            self._submit(StartReading(identity))

    def _reported(self, output: Output) -> None:
        match output:
            case Arrived(item=item, subscriptions=subscriptions):
                for each in subscriptions:
                    if isinstance(item, Gap):
                        self.gaps.setdefault(each, []).append(item.position.number)
                    else:
                        self._notified(each, item.position.number, item.id)
                    self._acknowledge(Acknowledge(each, item.position))
            case PublishSettled():
                self._settled(output)
            case RequestSettled(request=request):
                if (asked := self._pending.pop(request, None)) is not None:
                    self._answered(asked, output)
            case ConnectRefused(reason=reason):
                self.problems.append(f"{self.user}/{self.name} could not attach: {reason}")

    def _acknowledge(self, given: Acknowledge) -> None:
        """Acknowledge at once or a little later."""
        life = self.lives
        late_s = self._world.random.choice([0.0, 0.0, 0.0, 0.2])
        if late_s:
            self._world.after(late_s, lambda: self._submit(given) if self.lives == life else None)
        else:
            self._submit(given)

    def _notified(self, subscription: str, number: int, event: EventId) -> None:
        received = self.received.setdefault(subscription, {})
        if received.setdefault(number, event) != event:
            self.problems.append(f"{subscription} has {event} as {number}, which was {received[number]}")

    def _answered(self, asked: protocol.SubscriptionRequest, settled: RequestSettled) -> None:
        if settled.refusal is not None and isinstance(asked, protocol.Subscribe) and asked.since is not None:
            self._refused_past(asked, settled.refusal.reason, settled.refusal.limit)
            return
        if settled.refusal is not None:
            if settled.refusal.limit != "disk_full":
                self.problems.append(f"{self.user} is refused {asked}: {settled.refusal.reason}")
            if isinstance(asked, protocol.Renew):
                self.asked[asked.subscription].state = "unknown"
            return
        moment = self._moment()
        match asked:
            case protocol.Subscribe():
                for each in settled.subscriptions:
                    known = self.asked.setdefault(each.id, Asked())
                    if known.lives == 1:
                        known.counted.setdefault(1, moment)
            case protocol.Unsubscribe(subscription=subscription):
                self.asked[subscription].state = "ended"
            case protocol.Renew(subscription=subscription):
                known = self.asked[subscription]
                known.state = "live"
                known.counted[known.lives] = moment

    def _refused_past(self, asked: protocol.Subscribe, reason: str, limit: str | None) -> None:
        """Request a subscription to the past again if its leader could not answer."""
        self.refused_pasts += 1
        if "cannot be reached" in reason or limit == "disk_full":
            self._world.after(1.0, lambda: self.subscribe(asked.subject, asked.expression, asked.since))
        elif "the log begins" not in reason:
            self.problems.append(f"{self.user} is refused {asked}: {reason}")

    def _settled(self, settled: PublishSettled) -> None:
        uid = self._uids[settled.outbox, settled.number]
        published = self.published[uid]
        if settled.outbox and self._outbox.settled(settled.number, settled.limit, self._world.now):
            self._outbox.removed([settled.number])
            del self._stored[settled.number]
            if settled.id is None:
                self.problems.append(f"event {uid} of an outbox is refused for good: {settled.reason}")
        elif settled.limit == protocol.NUMBER_USED:
            self.problems.append(f"the number of event {uid} was used, and no device is a copy: {settled.reason}")
        if settled.id == HELD_BACK:
            published.held_back = self._moment()
        elif settled.id is not None:
            published.accepted = settled.id
        elif not settled.outbox:
            published.refused, published.limit = settled.reason, settled.limit
        if settled.outbox:
            if self._outbox.needs_epoch:
                self._renew_outbox()
            self._send_stored()

    def _renew_outbox(self) -> None:
        """Give the events that are left in the outbox another epoch; their numbers stay."""
        self._outbox_epoch = self._world.random.getrandbits(50) | 1
        for uid in self._stored.values():
            self.published[uid].stream = self.user, self.name, self._outbox_epoch
        self._outbox.renewed()

    def _note(self, what: str) -> None:
        self._world.note(f"{self.user}/{self.name}", what)
