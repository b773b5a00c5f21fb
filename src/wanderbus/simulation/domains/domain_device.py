"""Simulated device of a domain: it publishes, subscribes, advertises and reads at one server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from wanderbus import protocol
from wanderbus.broker.state.rows import session_key
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    ItemArrived,
    RequestSettled,
    SubscriptionOver,
)
from wanderbus.event import Event, EventId, Gap
from wanderbus.simulation.device import Request, SimulatedDevice
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.simulation.world import World
from wanderbus.subscription import Since, Subscription


class Item(NamedTuple):
    """An item of a subscription: an event with its id and name, or a gap with its reason."""

    moment: int
    number: int
    id: EventId | None
    text: str


class Asked(msgspec.Struct):
    """A subscription as its device knows it."""

    subscription: Subscription
    lives: int = 1
    """Number of times that it has begun: it may be renewed after its end."""
    counted: dict[int, int] = msgspec.field(default_factory=dict)
    """Moment from which each of its lives counts."""
    ending: dict[int, int] = msgspec.field(default_factory=dict)
    """Moment of the request that ends each of its lives."""
    state: str = "live"
    """live, ending, ended, renewing, or unknown after a crash of the device."""


class DomainDevice(SimulatedDevice):
    """One device of a user, across the lives of its application.

    With ``is_filtering`` it holds back events that nobody wants; with ``resubmits`` it requests a subscription again
    that its server has lost.
    """

    node: DomainNode

    def __init__(
        self,
        world: World,
        node: DomainNode,
        user: str,
        name: str,
        delay_s: float,
        *,
        is_filtering: bool = False,
        resubmits: bool = False,
    ) -> None:
        super().__init__(world, node, user, name, delay_s)
        self.asked: dict[str, Asked] = {}
        """Subscriptions that it has requested, by id."""
        self.items: dict[str, list[Item]] = {}
        """Items of each subscription and its successors, in the order of arrival, by the id of the first."""
        self.lives = 0
        self.subscribed = 0
        self.on_event: Callable[[Event], None] = lambda event: None
        """Called with each event that arrives."""
        self._is_filtering = is_filtering
        self._resubmits = resubmits
        self._first: dict[str, str] = {}
        """The first subscription of each successor."""
        self._outbox_epoch = world.random.getrandbits(50) | 1
        self._live()

    @property
    def is_settled(self) -> bool:
        """Return whether everything is answered."""
        return super().is_settled and not self._stored

    def _live(self) -> None:
        """Begin a life of the application."""
        self.lives += 1
        self._begin(self.world.random.getrandbits(50) | 1)
        self.world.after(self.world.random.uniform(0.0, 0.3), self.connect)
        self._send_stored()

    def _properties(self, epoch: int) -> AgentProperties:
        return msgspec.structs.replace(
            super()._properties(epoch),
            publisher_filtering=self._is_filtering,
            on_ended="resubmit" if self._resubmits else "ignore",
        )

    def crash(self) -> None:
        """End this life, and begin another one."""
        if self._is_deferred(self.crash):
            return
        self._note("crashes")
        for request in self._pending.values():
            if isinstance(request, protocol.Unsubscribe | protocol.Renew):
                self.asked[request.subscription].state = "unknown"
        self._end()
        self._live()

    # Application ----------------------------------------------------------------------------------------------------

    def subscribe(self, subject: str, expression: str, since: Since | None = None) -> None:
        """Request a subscription; while the leader of its past cannot be reached, again after a while."""
        self.subscribed += 1
        self.ask(protocol.Subscribe(0, subject, expression, None, (), this_device_only=False, since=since))

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription whose state is known."""
        asked = self.asked[subscription]
        if asked.state == "live":
            asked.state = "ending"
            asked.ending[asked.lives] = self.world.moment()
            self.ask(protocol.Unsubscribe(0, subscription))

    def renew(self, subscription: str) -> None:
        """Renew a subscription that has ended."""
        asked = self.asked[subscription]
        if asked.state == "ended":
            asked.state = "renewing"
            asked.lives += 1
            self.ask(protocol.Renew(0, subscription, None))

    def unsubscribe_all(self) -> None:
        """End every subscription of the session, as the server knows them."""
        session = self.node.broker.state.sessions.get(session_key(self.user, "default"))
        for identity in list(session.subscriptions) if session else ():
            self.ask(protocol.Unsubscribe(0, identity))

    def live_subscriptions(self) -> list[Subscription]:
        """Return the subscriptions that the server has; the answer to a request of this device may be lost."""
        rows = (each.subscription for each in self.node.broker.state.subscriptions.values())
        return [each for each in rows if each.owner == self.user]

    def first_of(self, subscription: str) -> str:
        """Return the subscription that this one has replaced, or itself."""
        return self._first.get(subscription, subscription)

    def received(self, subscription: str) -> dict[int, Item]:
        """Return the items of a subscription by number, in the order of their first arrival."""
        items: dict[int, Item] = {}
        for each in self.items.get(subscription, ()):
            items.setdefault(each.number, each)
        return items

    # Answers --------------------------------------------------------------------------------------------------------

    def _arrived(self, arrived: ItemArrived) -> None:
        item, number = arrived.item, arrived.item.position.number
        identity, text = (None, item.reason) if isinstance(item, Gap) else (item.id, str(item.event["Uid"]))
        found = Item(self.world.moment(), number, identity, text)
        for subscription in arrived.subscriptions:
            self.items.setdefault(self.first_of(subscription), []).append(found)
            self._acknowledge(Acknowledge(subscription, item.position))
        if not isinstance(item, Gap):
            self.on_event(item.event)

    def _acknowledge(self, given: Acknowledge) -> None:
        """Acknowledge at once or a little later."""
        life = self.lives
        late_s = self.world.random.choice([0.0, 0.0, 0.0, 0.2])
        if late_s:
            self.world.after(late_s, lambda: self._submit(given) if self.lives == life else None)
        else:
            self._submit(given)

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        if settled.refusal is not None:
            self._refused(asked, settled.refusal)
            return
        moment = self.world.moment()
        match asked:
            case protocol.Subscribe():
                for each in settled.subscriptions:
                    known = self.asked.setdefault(each.id, Asked(each))
                    if known.lives == 1:
                        known.counted.setdefault(1, moment)
            case protocol.Unsubscribe(subscription=subscription) if subscription in self.asked:
                self.asked[subscription].state = "ended"
            case protocol.Renew(subscription=subscription):
                known = self.asked[subscription]
                known.state = "live"
                known.counted[known.lives] = moment

    def _refused(self, asked: Request, refusal: protocol.RequestRefused) -> None:
        """Request a subscription to the past again if its leader could not answer; nothing else may be refused."""
        if isinstance(asked, protocol.Renew):
            self.asked[asked.subscription].state = "unknown"
        is_past = isinstance(asked, protocol.Subscribe) and asked.since is not None
        is_temporary = "cannot be reached" in refusal.reason or "is about to lead" in refusal.reason
        if is_past and (is_temporary or refusal.limit == "disk_full"):
            self.world.after(1.0, lambda: self.ask(asked))
        elif "Spark matches" in refusal.reason:
            self._note(f"has no pattern: {refusal.reason}")
        elif refusal.limit != "disk_full" and not (is_past and "the log begins" in refusal.reason):
            self.problems.append(f"{self.user} is refused {asked}: {refusal.reason}")

    def _over(self, over: SubscriptionOver) -> None:
        if over.successor is not None:
            self._first[over.successor.id] = self.first_of(over.subscription.id)

    # Checks ---------------------------------------------------------------------------------------------------------

    def check(self) -> Iterator[str]:
        """Yield what the device has noticed, and whether it waits; all is quiet."""
        yield from self.problems
        self.problems.clear()
        if not self.is_settled:
            yield f"{self.user}/{self.name} waits for answers"
