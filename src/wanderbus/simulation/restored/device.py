"""Simulated device of a world whose servers are restored: it keeps what its subscriptions received, in order."""

from __future__ import annotations

from typing import NamedTuple

from wanderbus import protocol
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import AgentProperties, Arrived, RequestSettled, SubscriptionOver
from wanderbus.event import EventId, Gap
from wanderbus.machine import Output
from wanderbus.simulation.domains.ordered_device import OrderedDevice
from wanderbus.subscription import Subscription


class Item(NamedTuple):
    """An item of a subscription: the name of an event and its id, or the reason of a gap."""

    moment: int
    uid: str
    id: EventId | None = None


class RestoreDevice(OrderedDevice):
    """A device whose application lives on, and requests each subscription again that its server has lost."""

    def _begin(self) -> None:
        super()._begin()
        self.items: dict[str, list[Item]] = {}
        """Items of each requested subscription and its successors, by the id of the first."""
        self.wanted: dict[str, Subscription] = {}
        """Subscriptions that were confirmed, by id."""
        self._first: dict[str, str] = {}
        """The first subscription of each successor."""
        self._conversation = Conversation(
            AgentProperties(
                uri=self.user,
                server=("192.0.2.1", 5060),
                broker="",
                device=self.name,
                epoch=self._epoch,
                on_ended="resubmit",
            )
        )

    def first_of(self, subscription: str) -> str:
        """Return the subscription that this one has replaced, or itself."""
        return self._first.get(subscription, subscription)

    def _reported(self, output: Output) -> None:
        match output:
            case Arrived(item=item, subscriptions=subscriptions):
                if isinstance(item, Gap):
                    found = Item(self._moment(), item.reason)
                else:
                    found = Item(0, str(item.event["Uid"]), item.id)
                for each in subscriptions:
                    self.items.setdefault(self.first_of(each), []).append(found)
            case SubscriptionOver(subscription=lost, successor=successor) if successor is not None:
                self._first[successor.id] = self.first_of(lost.id)
        super()._reported(output)

    def _answered(self, asked: protocol.SubscriptionRequest, settled: RequestSettled) -> None:
        super()._answered(asked, settled)
        self.wanted |= {each.id: each for each in settled.subscriptions}

    def _notified(self, subscription: str, number: int, event: EventId) -> None:
        """Take a notification; a restored server gives its number again."""
