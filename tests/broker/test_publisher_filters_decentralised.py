"""Filters of decentralised channels for publishing agents: what other servers want counts too (SPEC K-05, N-03)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.access_desk import NORTHERN, AccessDesk
from tests.broker.test_publisher_filters import publisher, requested, wants
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import RoutesAnswered, RoutesArrived
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, Leader, LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.messages import (
    FromSender,
    InterestChanged,
    InterestWhole,
    NumberedFilter,
    Stream,
    encode,
)
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import Output
from wanderbus.protocol import ConfirmFilters, Filters

STREAM = Stream(0, "north")
LINK = 77


class DecentralisedDesk(AccessDesk):
    """The desk of the server ``south``, whose channels are decentralised; ``north`` leads them."""

    merging = Merging()

    def start(self) -> None:
        """Boot from the disk."""
        groups = ChannelGroups(b"key", 1)
        directory = Directory(groups, LeaderTable(1, ("north", "south"), (Leader("north", 1),)))
        decentralised = DecentralisedChannels(
            directory,
            "south",
            ["north", "south"],
            merging_of=lambda subject: self.merging,
            mergings=(self.merging,),
            has_ordered=False,
        )
        self.answers: list[RoutesAnswered] = []
        self.timers.clear()
        self.broker = Broker(
            self.recovered(), self.config, channels=OwnChannels(directory, "south", decentralised=decentralised)
        )
        self.give(ServerStarted())

    def perform(self, outputs: Sequence[Output]) -> None:
        """Collect the answers about routes, and execute the others."""
        self.answers += [each for each in outputs if isinstance(each, RoutesAnswered)]
        super().perform(outputs)

    def routes(self, message: FromSender) -> None:
        """Let a message about the interest of ``north`` arrive."""
        self.give(RoutesArrived("north", LINK, message, encode(message)))

    def confirmed(self) -> list[int]:
        """Versions that were confirmed."""
        return [each.answer.version for each in self.answers]


@pytest.fixture
def desk() -> DecentralisedDesk:
    return DecentralisedDesk()


def wanted(number: int, expression: str) -> NumberedFilter:
    """A filter of ``north``."""
    return NumberedFilter(number, NORTHERN, expression)


def test_an_agent_gets_no_filters_before_the_interest_of_all_servers_is_known(desk: DecentralisedDesk) -> None:
    bob = publisher(desk)
    assert requested(desk, bob, 1, NORTHERN).expressions is None
    desk.routes(InterestWhole(STREAM, 1, 1, (wanted(1, "N == 1"),)))
    assert [n for n in range(3) if wants(requested(desk, bob, 2, NORTHERN), n)] == [1]


def test_interest_of_a_server_is_confirmed_once_agents_use_it_in_the_order_of_its_versions(
    desk: DecentralisedDesk,
) -> None:
    bob = publisher(desk)
    desk.routes(InterestWhole(STREAM, 1, 1, ()))
    assert desk.confirmed() == [1]
    assert requested(desk, bob, 1, NORTHERN).expressions == ()
    desk.routes(InterestChanged(STREAM, 1, 2, 1, (wanted(1, "N == 1"), wanted(2, "N == 2")), ()))
    desk.routes(InterestChanged(STREAM, 1, 3, 2, (), (2,)))
    assert desk.confirmed() == [1]
    pushed = desk.received(bob, Filters)[-1]
    assert [n for n in range(4) if wants(pushed, n)] == [1, 2]
    desk.send(bob, ConfirmFilters(NORTHERN, pushed.version))
    assert desk.confirmed() == [1, 2, 3]
    assert [n for n in range(4) if wants(requested(desk, bob, 2, NORTHERN), n)] == [1]


def test_everything_is_sent_to_a_channel_that_requires_advertisements() -> None:
    """An event that is not advertised has to be refused, not held back (SPEC K-07)."""
    desk = DecentralisedDesk()
    desk.merging = Merging(for_advertisers=True)
    desk.start()
    bob = publisher(desk)
    desk.routes(InterestWhole(STREAM, 1, 1, ()))
    assert requested(desk, bob, 1, NORTHERN).expressions is None
