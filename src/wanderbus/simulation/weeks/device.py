"""Simulated device over weeks: an application on the agent's conversation that starts, stops, crashes and moves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    ItemArrived,
    PublishSettled,
    RequestSettled,
    StartReading,
    SubscriptionOver,
)
from wanderbus.event import Event, EventId, Position
from wanderbus.simulation.device import Request, SimulatedDevice
from wanderbus.simulation.weeks.life import ApplicationLife, Habits, Item, Received
from wanderbus.simulation.weeks.server import WeeksServer
from wanderbus.simulation.world import World

_PATIENCE_S: Final = 7_200.0
"""Delay before an outbox tries again; a full queue may stay full for days."""

_NOTICE_S: Final = (0.5, 180.0)
"""Bounds for noticing a broken link, for each side by itself."""


class WeeksDevice(SimulatedDevice):
    """One device, life after life."""

    notice_s = _NOTICE_S
    retry_s = (5.0, 600.0)
    patience_s = _PATIENCE_S
    reads_at_once = False
    node: WeeksServer

    def __init__(self, world: World, server: WeeksServer, user: str, name: str, habits: Habits) -> None:
        super().__init__(world, server, user, name, habits.delay_s)
        self.habits = habits
        self.lives: list[ApplicationLife] = []
        self.retired = False
        """True if it never returns once it is away."""
        self.hurries = False
        """True if it consumes at once what arrives, whatever its habits."""
        self.refused: dict[str, PublishSettled] = {}
        self.taken: dict[str, int] = {}
        """Consumed position, by subscription."""
        self.ignored: set[str] = set()
        """Subscriptions that nobody reads here, until everybody hurries."""
        self.stalled: set[str] = set()
        """Subscriptions whose reader consumes nothing, until everybody hurries."""
        self.leaves = 0
        """Number of times it announced that it will not return."""
        self.subscriptions: list[str] = []
        """Ids of its requests."""
        self.unsubscribed: list[str] = []
        self.purges = 0
        self.kicks = 0
        self._positions: dict[str, Position] = {}
        """Last position that the application has committed, by subscription."""
        self._looked_at: set[str] = set()
        self._untaken: list[tuple[Item, str]] = []

    @property
    def accepted(self) -> dict[str, EventId]:
        """Return the acknowledged id of every event, by the event's name."""
        return {uid: each.accepted for uid, each in self.published.items() if each.accepted is not None}

    def another(self, name: str, habits: Habits) -> WeeksDevice:
        """Return another device of the same user."""
        return WeeksDevice(self.world, self.node, self.user, name, habits)

    @property
    def settled(self) -> bool:
        """Return whether the application has its responses and has consumed what arrived."""
        return self.is_settled and not self._untaken

    # Start and end --------------------------------------------------------------------------------------------------

    def start(self, *, session: str | None = None, keep: bool = True, keep_queue: bool = False) -> None:
        """Begin a new life unless there is one; without ``keep`` it gives up the session's subscriptions."""
        if self.alive or self.retired:
            return
        self.session = session or self.session
        life = ApplicationLife(len(self.lives) + 1, self.session, keep, keep_queue)
        self.lives.append(life)
        self._note(f"starts life {life.epoch} in {self.session}{'' if keep else ' anew'}")
        self._begin(life.epoch)
        self._send_stored()
        self.connect()

    def _properties(self, epoch: int) -> AgentProperties:
        life = self.lives[-1]
        return msgspec.structs.replace(
            super()._properties(epoch), keep=life.keep, keep_queue=life.keep_queue, on_ended=self.habits.on_ended
        )

    def crash(self) -> None:
        """End this life at once; items that were not consumed are forgotten."""
        if self.alive:
            self._note("crashes")
            self._end()

    def _end(self) -> None:
        super()._end()
        self._untaken.clear()

    def go_away(self) -> None:
        """Be unreachable until :meth:`reconnect_soon`."""
        self.reachable = False
        self.lose()

    def reconnect_soon(self) -> None:
        """Be reachable again."""
        if not self.retired:
            self.reachable = True
            self.connect()

    def leave(self) -> None:
        """Announce that this device will not return, once all its requests are answered; the answer makes it true."""
        if self.is_settled and self.wire is not None:
            self.leaves += 1
            self.ask(protocol.Leave(0))

    # Application ----------------------------------------------------------------------------------------------------

    def offer(
        self, subject: str, attributes: dict[str, str | int | datetime], *, twice: bool = False, outbox: bool = False
    ) -> None:
        """Publish an event under its own name; ``twice`` repeats the message at once."""
        if self.alive:
            uid = f"{self.user} {self.name} {len(self.published) + 1}"
            self.publish(Event(subject, {**attributes, "Uid": uid}), twice=twice, outbox=outbox)

    def ask(self, request: Request) -> None:
        """Send a request about the session's or the user's subscriptions."""
        if not self.alive:
            return
        if isinstance(request, protocol.Unsubscribe):
            self.unsubscribed.append(request.subscription)
            self.lives[-1].wanted.pop(request.subscription, None)
        self.purges += isinstance(request, protocol.Purge)
        self.kicks += isinstance(request, protocol.Kick)
        super().ask(request)

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

    def _read(self, subscription: str) -> None:
        """Read a subscription, except some that nobody reads here (SPEC G-25)."""
        known = self.node.broker.state.known(subscription)
        if known is None or known.subscription.device not in (None, self.name):
            return
        if subscription not in self._looked_at:
            self._looked_at.add(subscription)
            if self.world.random.random() < self.habits.ignores:
                self.world.random.choice([self.ignored, self.stalled]).add(subscription)
        if self.hurries or subscription not in self.ignored:
            position = self._positions.get(subscription) if self.habits.resumes else None
            self._submit(StartReading(subscription, position))

    # Received messages ----------------------------------------------------------------------------------------------

    def _heard(self, message: protocol.BrokerMessage, arrived: Sequence[ItemArrived]) -> None:
        self._note(f"hears {_shown(message)}")
        if isinstance(message, protocol.Attachment | protocol.Notify | protocol.NotifyGap):
            items = tuple([(output.item, output.subscriptions) for output in arrived])
            self.lives[-1].received.append(Received(message, items))
            if items and all(subscription in self.stalled for _, subscription in self._untaken):
                life = self.lives[-1]
                think_s = self.world.random.uniform(0, 1.0 if self.hurries else self.habits.think_s)
                self.world.after(think_s, lambda: self._take_all() if self.alive and self.lives[-1] is life else None)
            self._untaken += [(item, subscription) for item, subscriptions in items for subscription in subscriptions]

    def _sends_itself(self, message: protocol.AgentMessage) -> None:
        if isinstance(message, protocol.Unsubscribe):
            self.unsubscribed.append(message.subscription)

    def _over(self, over: SubscriptionOver) -> None:
        self.lives[-1].over.append(over)

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        if isinstance(asked, protocol.Subscribe):
            self.subscriptions += [each.id for each in settled.subscriptions]
            self.lives[-1].wanted.update((each.id, None) for each in settled.subscriptions)
        elif isinstance(asked, protocol.Leave):
            self._note("has left")
            self._end()

    def _settled(self, settled: PublishSettled) -> None:
        uid = self._uids[settled.outbox, settled.number]
        super()._settled(settled)
        if settled.id is None and not settled.outbox:
            self.refused[uid] = settled


def _shown(message: protocol.BrokerMessage) -> str:
    """Return a line for the trace; an event is known by its id."""
    if isinstance(message, protocol.Notify):
        return f"{message.number}: {message.id} for {message.subscriptions}, read as {message.readers}"
    return repr(message)
