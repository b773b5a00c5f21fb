"""Simulated device over weeks: an application on the agent's conversation that starts, stops, crashes and moves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

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
    SubscriptionOver,
)
from wanderbus.client.machine.outbox import Outbox
from wanderbus.event import Event, EventId, Position
from wanderbus.machine import Output
from wanderbus.simulation.weeks.life import Habits, Item, Life, Received
from wanderbus.simulation.weeks.server import WeeksServer
from wanderbus.simulation.weeks.wire import Wire
from wanderbus.simulation.world import World

Request = protocol.SubscriptionRequest | protocol.Purge | protocol.Kick

_PATIENCE_S: Final = 7_200.0
"""Delay before an outbox tries again; a full queue may stay full for days."""

_OUTBOX: Final = 7
"""The epoch of every device's outbox."""

_NOTICE_S_MAX: Final = 180.0
"""Bound for noticing a broken link, for each side by itself."""


class WeeksDevice:
    """One device, life after life."""

    def __init__(self, world: World, server: WeeksServer, user: str, name: str, habits: Habits) -> None:
        self.user = user
        self.name = name
        self.habits = habits
        self.session = "default"
        self.lives: list[Life] = []
        self.alive = False
        self.reachable = True
        self.retired = False
        """True if it never returns once it is away."""
        self.hurries = False
        """True if it consumes at once what arrives, whatever its habits."""
        self.accepted: dict[str, EventId] = {}
        """Acknowledged id of every event, by the event's name."""
        self.refused: dict[str, PublishSettled] = {}
        self.taken: dict[str, int] = {}
        """Consumed position, by subscription."""
        self.ignored: set[str] = set()
        """Subscriptions that nobody reads here, until everybody hurries."""
        self.stalled: set[str] = set()
        """Subscriptions whose reader consumes nothing, until everybody hurries."""
        self.leaves = 0
        """Number of times it announced that it will not return."""
        self.events = 0
        self.subscriptions: list[str] = []
        """Ids of its requests."""
        self.unsubscribed: list[str] = []
        self.purges = 0
        self.kicks = 0
        self.problems: list[str] = []
        self.wire: Wire | None = None
        self._world = world
        self._server = server
        self._leaving = False
        self._positions: dict[str, Position] = {}
        """Last position that the application has committed, by subscription."""
        self._looked_at: set[str] = set()
        self._conversation: Conversation | None = None
        self._untaken: list[tuple[Item, str]] = []
        self._uids: dict[tuple[bool, int], str] = {}
        self._stored: dict[int, Event] = {}
        """Events in the outbox, which outlives the application, by number."""
        self._stored_last = 0
        self._outbox = Outbox()
        self._asked: dict[int, Request] = {}

    @property
    def world(self) -> World:
        """Return the world of the device."""
        return self._world

    def another(self, name: str, habits: Habits) -> WeeksDevice:
        """Return another device of the same user."""
        return WeeksDevice(self._world, self._server, self.user, name, habits)

    @property
    def settled(self) -> bool:
        """Return whether the application has its responses and has consumed what arrived."""
        conversation = self._conversation
        return conversation is not None and conversation.attached and not conversation.unanswered and not self._untaken

    # Start and end
    # -----------------------------------------------------------------------------------------------------

    def start(self, *, session: str | None = None, keep: bool = True, keep_queue: bool = False) -> None:
        """Begin a new life unless there is one; without ``keep`` it gives up the session's subscriptions."""
        if self.alive or self.retired:
            return
        self.session = session or self.session
        life = Life(len(self.lives) + 1, self.session, keep)
        self.lives.append(life)
        self.alive, self._leaving = True, False
        self._conversation = Conversation(
            AgentProperties(
                uri=self.user,
                server=("192.0.2.1", 5060),
                broker="sip:broker@sim.test",
                device=self.name,
                epoch=life.epoch,
                session=self.session,
                keep=keep,
                keep_queue=keep_queue,
                on_ended=self.habits.on_ended,
            )
        )
        self._note(f"starts life {life.epoch} in {self.session}{'' if keep else ' anew'}")
        self._outbox = Outbox(self._stored)
        self._send_stored()
        self.connect()

    def crash(self) -> None:
        """End this life at once; items that were not consumed are forgotten."""
        if self.alive:
            self._note("crashes")
            self._end_life()

    def move(self) -> None:
        """Move to a new link, while the broker may still keep the old one."""
        self._note("moves")
        self.reachable = True
        self._drop_wire()
        self.connect()

    def lose(self, *, up: bool = True, down: bool = True) -> None:
        """Break the link, in one direction or both; each side notices after its own time."""
        wire = self.wire
        if wire is None:
            return
        self._note(f"link {wire.link} breaks{' up' if up else ''}{' down' if down else ''}")
        if up:
            wire.up.cut()
        if down:
            wire.down.cut()
        self._server_notices(wire)
        self._notices_later(wire)

    def go_away(self) -> None:
        """Be unreachable until :meth:`come_back`."""
        self.reachable = False
        self.lose()

    def reconnect_soon(self) -> None:
        """Be reachable again."""
        if not self.retired:
            self.reachable = True
            self.connect()

    def leave(self) -> None:
        """Announce that this device will not return, once all its requests are answered; the answer makes it true."""
        conversation = self._conversation
        if conversation is not None and conversation.attached and not conversation.unanswered and self.wire is not None:
            self._leaving = True
            self.leaves += 1
            self._submit(Ask(protocol.Leave(self._request())))

    def connect(self) -> None:
        """Open a link if there is none, or try again later."""
        if not self.alive or not self.reachable or self.wire is not None:
            return
        self.wire = self._server.open(self.user, self.name, self.habits.delay_s, self._receive)
        if self.wire is None:
            self._world.after(self._world.random.uniform(5, 600), self.connect)
            return
        wire = self.wire
        wire.on_drop = lambda: self._notices_later(wire)
        assert self._conversation is not None
        for payload in self._conversation.opening():
            wire.up.send(payload)

    def server_crashed(self) -> None:
        """Handle a crash of the server; the broken link is noticed late."""
        if wire := self.wire:
            self._notices_later(wire)

    def _notices_later(self, wire: Wire) -> None:
        self._world.after(self._world.random.uniform(0.5, _NOTICE_S_MAX), lambda: self._notices(wire))

    def _notices(self, wire: Wire) -> None:
        if self.wire is wire:
            self._note(f"notices that link {wire.link} is broken")
            self._drop_wire()
            self.connect()

    def _drop_wire(self) -> None:
        if wire := self.wire:
            self.wire = None
            wire.cut()
            self._server_notices(wire)

    def _server_notices(self, wire: Wire) -> None:
        late_s = self._world.random.uniform(0.5, _NOTICE_S_MAX)
        self._world.after(late_s, lambda: self._server.close(wire.link, "the agent does not answer"))

    def _end_life(self) -> None:
        self.alive = False
        self._drop_wire()
        self._conversation = None
        self._untaken.clear()
        self._asked.clear()
        self._uids = {key: uid for key, uid in self._uids.items() if key[0]}

    # Application
    # -------------------------------------------------------------------------------------------------------

    def publish(
        self, subject: str, attributes: dict[str, str | int | datetime], *, twice: bool = False, outbox: bool = False
    ) -> None:
        """Publish an event under its own name; ``twice`` repeats the message at once."""
        if not self.alive:
            return
        self.events += 1
        uid = f"{self.user} {self.name} {self.events}"
        event = Event(subject, {**attributes, "Uid": uid})
        if outbox:
            self._stored_last += 1
            self._stored[self._stored_last] = event
            self._uids[True, self._stored_last] = uid
            self._outbox.stored(self._stored_last)
            self._send_stored()
        else:
            self.lives[-1].publishes += 1
            number = self.lives[-1].publishes
            self._uids[False, number] = uid
            self._submit(PublishEvent(number, protocol.encode_event(event)), twice=twice)

    def _send_stored(self) -> None:
        """Publish what the outbox releases; after a refusal try again some time later."""
        if not self.alive:
            return
        now = self._world.now
        while (number := self._outbox.next(now)) is not None:
            self._submit(PublishEvent(number, protocol.encode_event(self._stored[number]), _OUTBOX))
        if (at := self._outbox.wake_at()) is not None:
            outbox = self._outbox
            self._world.at(at + _PATIENCE_S, lambda: self._send_stored() if self._outbox is outbox else None)

    def ask(self, request: Request) -> None:
        """Send a request about the session's or the user's subscriptions."""
        if not self.alive:
            return
        request = msgspec.structs.replace(request, request=self._request())
        self._asked[request.request] = request
        if isinstance(request, protocol.Unsubscribe):
            self.unsubscribed.append(request.subscription)
            self.lives[-1].wanted.pop(request.subscription, None)
        elif isinstance(request, protocol.Purge):
            self.purges += 1
        elif isinstance(request, protocol.Kick):
            self.kicks += 1
        self._submit(Ask(request))

    def _request(self) -> int:
        self.lives[-1].requests += 1
        return self.lives[-1].requests

    def _submit(self, given: PublishEvent | Ask | StartReading | Acknowledge, *, twice: bool = False) -> None:
        assert self._conversation is not None
        payload = self._conversation.send(given)
        if payload is not None and self.wire is not None:
            for _ in range(1 + twice):
                self.wire.up.send(payload)

    def _take_all(self) -> None:
        """Consume what has arrived; the results are committed with the position if this application does so."""
        taken = [each for each in self._untaken if self.hurries or each[1] not in self.stalled]
        self._untaken = [each for each in self._untaken if each not in taken]
        last = {subscription: item.position for item, subscription in taken}
        self.lives[-1].processed += taken
        for subscription, position in last.items():
            self.taken[subscription] = max(self.taken.get(subscription, 0), position.number)
            self._positions[subscription] = position
            self._note(f"has taken {subscription} up to {position.number}")
            self._submit(Acknowledge(subscription, position))

    def read_everything(self) -> None:
        """From now on, read everything, and consume at once what arrives."""
        self.hurries = True
        if self.alive and self._untaken:
            self._take_all()
        self.read_all()

    def read_all(self) -> None:
        """Read every subscription of the session, except some that nobody reads here (SPEC G-25)."""
        broker, conversation = self._server.broker, self._conversation
        if broker is None or conversation is None or not conversation.attached:
            return
        session = broker.state.sessions.get(session_key(self.user, self.session))
        for identity in (*session.ended, *session.subscriptions) if session is not None else ():
            known = broker.state.known(identity)
            if known is None or known.subscription.device not in (None, self.name):
                continue
            if identity not in self._looked_at:
                self._looked_at.add(identity)
                if self._world.random.random() < self.habits.ignores:
                    self._world.random.choice([self.ignored, self.stalled]).add(identity)
            if self.hurries or identity not in self.ignored:
                self._submit(StartReading(identity, self._positions.get(identity) if self.habits.resumes else None))

    # Received messages
    # -------------------------------------------------------------------------------------------------

    def _receive(self, link: int, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            if self.wire is None or self.wire.link != link or self._conversation is None:
                return
            message = protocol.decode_from_broker(payload)
            outputs = self._conversation.receive(payload)
            self._note(f"hears {_shown(message)}")
            if isinstance(message, protocol.Attachment | protocol.Notify | protocol.NotifyGap):
                arrived = [output for output in outputs if isinstance(output, Arrived)]
                items = tuple([(output.item, output.subscriptions) for output in arrived])
                self.lives[-1].received.append(Received(link, message, items))
                self._arrived(items)
            for output in outputs:
                self._reported(output)
            self._send_own_requests()
            if not isinstance(message, protocol.Notify | protocol.NotifyGap):
                self.read_all()

    def _send_own_requests(self) -> None:
        """Send the agent's own requests; if there is no link, they are repeated on the next one."""
        for payload in self._conversation.take_unsent() if self._conversation else ():
            message = protocol.decode_from_agent(payload)
            if isinstance(message, protocol.Unsubscribe):
                self.unsubscribed.append(message.subscription)
            if self.wire is not None:
                self.wire.up.send(payload)

    def _arrived(self, items: Sequence[tuple[Item, tuple[str, ...]]]) -> None:
        if items and all(subscription in self.stalled for _, subscription in self._untaken):
            life = self.lives[-1]
            think_s = self._world.random.uniform(0, 1.0 if self.hurries else self.habits.think_s)
            self._world.after(think_s, lambda: self._take_all() if self.lives[-1] is life else None)
        self._untaken += [(item, subscription) for item, subscriptions in items for subscription in subscriptions]

    def _reported(self, output: Output) -> None:
        match output:
            case PublishSettled():
                self._settled(output)
            case SubscriptionOver():
                self.lives[-1].over.append(output)
            case RequestSettled(request=request, subscriptions=subscriptions):
                asked = self._asked.pop(request, None)
                if isinstance(asked, protocol.Subscribe):
                    self.subscriptions += [each.id for each in subscriptions]
                    self.lives[-1].wanted.update((each.id, None) for each in subscriptions)
                elif asked is None and self._leaving:
                    self._note("has left")
                    self._end_life()
            case ConnectRefused(reason=reason):
                self.problems.append(f"could not attach: {reason}")

    def _settled(self, settled: PublishSettled) -> None:
        uid = self._uids[settled.outbox, settled.number]
        if settled.limit == protocol.NUMBER_USED:
            self.problems.append(f"the number of event {uid} was used, and no device is a copy: {settled.reason}")
        if settled.outbox:
            if self._outbox.settled(settled.number, settled.limit, self._world.now):
                self._outbox.removed([settled.number])
                del self._stored[settled.number]
            self._send_stored()
        if settled.id is not None:
            self.accepted[uid] = settled.id
        elif not settled.outbox:
            self.refused[uid] = settled

    def _note(self, what: str) -> None:
        self._world.note(f"{self.user}/{self.name}", what)


def _shown(message: protocol.BrokerMessage) -> str:
    """Return a line for the trace; an event is known by its id."""
    if isinstance(message, protocol.Notify):
        return f"{message.number}: {message.id} for {message.subscriptions}, read as {message.readers}"
    return repr(message)
