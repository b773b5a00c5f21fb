"""Simulated device around the agent's conversation: it publishes, asks and reads over links that break."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from wanderbus import protocol
from wanderbus.broker.state.rows import session_key
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    ConnectRefused,
    ItemArrived,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    StartReading,
    SubscriptionOver,
)
from wanderbus.client.machine.outbox import OutboxNumbers
from wanderbus.event import HELD_BACK, Event, EventId
from wanderbus.machine import Output
from wanderbus.simulation.broker_host import BrokerHost
from wanderbus.simulation.wire import Wire
from wanderbus.simulation.world import World

Request = protocol.AgentRequest


class PublishedEvent(msgspec.Struct):
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


class SimulatedDevice:
    """One device of a user at a server, across the lives of its application.

    A subclass has the application: what it reads and consumes, and its answers.
    """

    notice_s: tuple[float, float] = (0.01, 2.0)
    """Shortest and longest time after which the device or its server notices that their link is broken."""
    retry_s: tuple[float, float] = (0.1, 1.0)
    """Pause before it connects again to a server that is down."""
    patience_s: float = 0.0
    """Pause of the outbox after a refusal, besides its own."""
    may_be_refused: bool = False
    """True if an event may be refused for good."""
    reads_at_once: bool = True
    """True if it reads a new subscription at once."""

    def __init__(self, world: World, node: BrokerHost, user: str, name: str, delay_s: float) -> None:
        self.world = world
        self.node = node
        self.user = user
        self.name = name
        self.session = "default"
        self.delay_s = delay_s
        self.alive = False
        self.reachable = True
        self.wire: Wire | None = None
        self.published: dict[str, PublishedEvent] = {}
        self.problems: list[str] = []
        self._conversation: Conversation
        self._epoch = 0
        self._numbers = 0
        self._requests = 0
        self._pending: dict[int, Request] = {}
        """Requests without an answer."""
        self._outbox = OutboxNumbers()
        self._outbox_epoch = 7
        self._stored: dict[int, str] = {}
        """Names of the events in the outbox, which outlives the application, by number."""
        self._stored_last = 0
        self._uids: dict[tuple[bool, int], str] = {}
        self._awake_at = 0.0
        """Time at which the present suspension ends, or the last one has ended."""
        self._suspended_s = 0.0

    @property
    def is_settled(self) -> bool:
        """Return whether everything is answered."""
        return self.alive and self._conversation.attached and not self._conversation.unanswered

    # Lives and links ------------------------------------------------------------------------------------------------

    def _begin(self, epoch: int) -> None:
        """Begin a life of the application."""
        self.alive = True
        self._epoch, self._numbers = epoch, 0
        self._conversation = Conversation(self._properties(epoch))
        self._outbox = OutboxNumbers(self._stored)

    def _properties(self, epoch: int) -> AgentProperties:
        """Return the properties of the agent in a life."""
        return AgentProperties(
            uri=self.user,
            server=("192.0.2.1", 5060),
            broker="",
            device=self.name,
            epoch=epoch,
            session=self.session,
        )

    def _end(self) -> None:
        """End this life at once; what was not answered or consumed is forgotten."""
        self.alive = False
        self._drop()
        self._pending.clear()
        self._uids = {key: uid for key, uid in self._uids.items() if key[0]}

    def suspend(self, seconds: float) -> None:
        """Do nothing for a while, as a device that sleeps; what arrives meanwhile is read afterwards."""
        if self.world.now < self._awake_at:
            return

        def wake() -> None:
            self._suspended_s += seconds

        self._note("sleeps")
        self._awake_at = self.world.now + seconds
        self.world.at(self._awake_at, wake)

    def _is_deferred(self, action: Callable[[], None]) -> bool:
        """Return whether the device is suspended; then ``action`` is done when it wakes."""
        if is_suspended := self.world.now < self._awake_at:
            self.world.at(self._awake_at, action)
        return is_suspended

    def move(self) -> None:
        """Move to a new link at once, while the server may still keep the old one."""
        self._note("moves")
        self.reachable = True
        self._drop()
        self.connect()

    def lose(self, *, up: bool = True, down: bool = True) -> None:
        """Break the link, in one direction or both; each side notices after its own time."""
        if wire := self.wire:
            self._note(f"link {wire.link} breaks{' up' if up else ''}{' down' if down else ''}")
            for direction, is_cut in ((wire.up, up), (wire.down, down)):
                if is_cut:
                    direction.cut()
            self._node_notices_later(wire)
            self._notice_later(wire)

    def connect(self) -> None:
        """Open a link if there is none, or try again later."""
        if not self.alive or not self.reachable or self.wire is not None or self._is_deferred(self.connect):
            return
        self.wire = wire = self.node.open(self.user, self.name, self.delay_s, self._receive)
        if wire is None:
            self.world.after(self.world.random.uniform(*self.retry_s), self.connect)
            return
        wire.on_drop = lambda: self._notice_later(wire)
        for payload in self._conversation.opening():
            wire.up.send(payload)

    def _notice_later(self, wire: Wire) -> None:
        def notice() -> None:
            if self.wire is wire:
                self._note(f"notices that link {wire.link} is broken")
                self._drop()
                self.connect()

        self.world.after(self.world.random.uniform(*self.notice_s), notice)

    def _drop(self) -> None:
        if wire := self.wire:
            self.wire = None
            wire.cut()
            self._node_notices_later(wire)

    def _node_notices_later(self, wire: Wire) -> None:
        late_s, node = self.world.random.uniform(*self.notice_s), self.node
        self.world.after(late_s, lambda: node.close(wire.link, "the device does not answer"))

    # Application ----------------------------------------------------------------------------------------------------

    def publish(self, event: Event, *, outbox: bool = False, twice: bool = False) -> None:
        """Publish an event, which has a unique ``Uid``; ``twice`` repeats the message at once."""
        if not self.alive or self._is_deferred(lambda: self.publish(event, outbox=outbox, twice=twice)):
            return
        uid = str(event["Uid"])
        if outbox:
            number = self._stored_last = self._stored_last + 1
            self._stored[number] = uid
            self._outbox.stored(number)
        else:
            number = self._numbers = self._numbers + 1
        stream = self.user, self.name, self._outbox_epoch if outbox else self._epoch
        self._uids[outbox, number] = uid
        self.published[uid] = PublishedEvent(uid, stream, number, event, self.world.moment())
        if outbox:
            self._send_stored()
        else:
            self._submit(PublishEvent(number, protocol.encode_event(event), suspended_s=self._suspended_s), twice=twice)

    def ask(self, request: Request) -> None:
        """Send a request under the next number."""
        self._requests += 1
        request = msgspec.structs.replace(request, request=self._requests)
        self._pending[request.request] = request
        self._submit(AskBroker(request, reads=self.reads_at_once and isinstance(request, protocol.Subscribe)))

    def read_all(self) -> None:
        """Read the subscriptions of the session, also those that other devices have requested."""
        if not self.alive or not self.node.alive or not self._conversation.attached:
            return
        session = self.node.broker.state.sessions.get(session_key(self.user, self.session))
        for identity in (*session.ended, *session.subscriptions) if session is not None else ():
            self._read(identity)

    def _read(self, subscription: str) -> None:
        """Read a subscription of the session."""
        self._submit(StartReading(subscription))

    def _submit(self, given: PublishEvent | AskBroker | StartReading | Acknowledge, *, twice: bool = False) -> None:
        self._conversation.begin_step(self.world.now - self._suspended_s)
        payload = self._conversation.send(given)
        if payload is not None and self.wire is not None:
            for _ in range(1 + twice):
                self.wire.up.send(payload)
        self._send_unsent()
        for output in self._conversation.take_held_back():
            self._reported(output)

    def _send_unsent(self) -> None:
        """Send the agent's own messages; if there is no link, they are repeated on the next one."""
        for payload in self._conversation.take_unsent():
            self._sends_itself(protocol.decode_from_agent(payload))
            if self.wire is not None:
                self.wire.up.send(payload)

    def _sends_itself(self, message: protocol.AgentMessage) -> None:
        """Note a message that the agent sends without a request of the application."""

    def _send_stored(self) -> None:
        """Publish what the outbox releases; after a refusal try again some time later."""
        outbox = self._outbox

        def again() -> None:
            if self._outbox is outbox:
                self._send_stored()

        if not self.alive or self._is_deferred(again):
            return
        while (number := outbox.next(self.world.now)) is not None:
            data = protocol.encode_event(self.published[self._stored[number]].event)
            self._submit(PublishEvent(number, data, self._outbox_epoch, self._suspended_s))
        if (at := outbox.wake_at()) is not None:
            self.world.at(at + self.patience_s, again)

    # Received messages ----------------------------------------------------------------------------------------------

    def _receive(self, link: int, payloads: Sequence[bytes]) -> None:
        if self._is_deferred(lambda: self._receive(link, payloads)):
            return
        for payload in payloads:
            if self.wire is None or self.wire.link != link:
                return
            self._conversation.begin_step(self.world.now - self._suspended_s)
            outputs = self._conversation.receive(payload)
            message = protocol.decode_from_broker(payload)
            self._heard(message, [output for output in outputs if isinstance(output, ItemArrived)])
            for output in outputs:
                self._reported(output)
            self._send_unsent()
            if not isinstance(message, protocol.Notify | protocol.NotifyGap):
                self.read_all()

    def _heard(self, message: protocol.BrokerMessage, arrived: Sequence[ItemArrived]) -> None:
        """Take a message of the broker, and the items that the conversation has passed on."""

    def _reported(self, output: Output) -> None:
        match output:
            case ItemArrived():
                self._arrived(output)
            case PublishSettled():
                self._settled(output)
            case RequestSettled(request=request):
                if (asked := self._pending.pop(request, None)) is not None:
                    self._answered(asked, output)
            case SubscriptionOver():
                self._over(output)
            case ConnectRefused(reason=reason):
                self.problems.append(f"{self.user}/{self.name} could not attach: {reason}")

    def _arrived(self, arrived: ItemArrived) -> None:
        """Take an item of some subscriptions."""

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        """Take the answer to a request."""

    def _over(self, over: SubscriptionOver) -> None:
        """Take the end of a subscription that nobody has requested here."""

    def _settled(self, settled: PublishSettled) -> None:
        published = self.published[self._uids[settled.outbox, settled.number]]
        if settled.id == HELD_BACK:
            published.held_back = self.world.moment()
        elif settled.id is not None:
            published.accepted = settled.id
        elif not settled.outbox:
            published.refused, published.limit = settled.reason, settled.limit
        if settled.limit == protocol.NUMBER_USED:
            self.problems.append(f"the number of {published.uid} was used, and no device is a copy: {settled.reason}")
        if settled.outbox:
            self._settled_in_outbox(published, settled)

    def _settled_in_outbox(self, published: PublishedEvent, settled: PublishSettled) -> None:
        if self._outbox.settled(settled.number, settled.limit, self.world.now):
            self._outbox.removed([settled.number])
            del self._stored[settled.number]
            if settled.id is None and not self.may_be_refused:
                self.problems.append(f"event {published.uid} of an outbox is refused for good: {settled.reason}")
        if self._outbox.needs_epoch:
            self._renew_outbox()
        self._send_stored()

    def _renew_outbox(self) -> None:
        """Give the events that are left in the outbox another epoch; their numbers stay."""
        self._outbox_epoch = self.world.random.getrandbits(50) | 1
        for uid in self._stored.values():
            self.published[uid].stream = self.user, self.name, self._outbox_epoch
        self._outbox.renewed()

    def _note(self, what: str) -> None:
        self.world.note(f"{self.user}/{self.name}", what)
