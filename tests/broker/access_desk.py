"""A desk of a domain of two servers: it leads some channels, and ``north`` leads the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.broker.desk import Desk
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    ArrivalMatched,
    ArrivalsTaken,
    EventArrived,
    ForgetPublishes,
    ForwardPublish,
    OrderedInterestChanged,
    PublishAnswered,
)
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.channels.directory import Directory, Leader, LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event, EventId
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import PublishFor

NORTHERN, OWN = "Northern", "Trade"
"""Subjects of a channel of the other server, and of this one."""

Collected = ForwardPublish | OrderedInterestChanged | ArrivalMatched | ArrivalsTaken


class AccessDesk(Desk):
    """A desk that collects what its broker asks of the layer below; parents are ``Down`` of ``Up``, both northern."""

    others: Sequence[str] = ()
    """Servers that are asked about sessions."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.collected: list[Collected] = []
        self.merging_by_subject = defaultdict(Merging, {NORTHERN: Merging("adaptive")})
        super().__init__(config or BrokerConfig(server="south", domain="example.org"))

    def start(self) -> None:
        """Boot from the disk, with the channels of the domain."""
        pins = {NORTHERN: 1, OWN: 0, "Up": 1}
        groups = ChannelGroups(b"key", 2, pins=pins, parents={"Down": "Up"})
        table = LeaderTable(1, ("north", "south"), (Leader("south", 1), Leader("north", 1)))
        channels = OwnChannels(
            Directory(groups, table), "south", self.merging_by_subject.__getitem__, None, self.others
        )
        self._reading_all.clear()
        self.collected.clear()
        self.timers.clear()
        self.broker = Broker(self.recovered(), self.config, channels=channels)
        self.give(ServerStarted())

    def perform(self, outputs: Sequence[Output]) -> None:
        """Collect outputs for the layer below, and execute the others."""
        self.collected += [each for each in outputs if isinstance(each, Collected)]
        super().perform(outputs)

    def forwarded(self) -> list[PublishFor]:
        """Return the events that were forwarded since the last call."""
        found = [each for each in self.collected if isinstance(each, ForwardPublish)]
        self.collected = [each for each in self.collected if not isinstance(each, ForwardPublish)]
        return [each.publish for each in found]

    def changes(self) -> list[OrderedInterestChanged]:
        """Return the changes of interest since the last call."""
        found = [each for each in self.collected if isinstance(each, OrderedInterestChanged)]
        self.collected = [each for each in self.collected if not isinstance(each, OrderedInterestChanged)]
        return found

    def answered(self, request: int, number: int = 900) -> None:
        """Let the leader accept a forwarded event."""
        self.give(PublishAnswered(request, EventId("north", 3, number)))

    def arrives(self, number: int, subject: str = NORTHERN) -> None:
        """Let an event of ``north`` arrive whose ``N`` is its number."""
        event = Event(subject, {"N": number})
        self.give(EventArrived("north", 5, number, number - 1, EventId("north", 3, number), self.wall_us, event))


class ForwardingDesk(AccessDesk):
    """A server that keeps what it wants its leader to forget."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.forgotten: list[int] = []
        super().__init__(config)

    def perform(self, outputs: Sequence[Output]) -> None:
        for each in outputs:
            if isinstance(each, ForgetPublishes):
                self.forgotten += each.requests
        super().perform(outputs)

    def refuses(self, request: int, limit: str | None = "disk_full") -> None:
        """Let the leader refuse a forwarded event."""
        self.give(PublishAnswered(request, None, "no", limit))
