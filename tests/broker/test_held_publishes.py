"""A leader that does not know yet what other servers want: events wait there, and agents are told why (SPEC J-10)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import ALICE, BOB, raw
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import DecentralisedInterestChanged, LinkOpened
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.servers.leader_messages import InterestAwaited, LeaderTrouble
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, Leader, LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.event import Event
from wanderbus.limits import HELD_BYTES_MAX
from wanderbus.machine import Output
from wanderbus.protocol import (
    Attach,
    Done,
    NotifyServer,
    Publish,
    PublishAccepted,
    PublishesWait,
    PublishFor,
    PublishRefused,
    SettleInterest,
    Subscribe,
)
from wanderbus.records import InterestSettled, Published, ServerMet

DOMAIN = "example.org"
DECENTRALISED = "Direct"
"""Subject of a decentralised channel."""
EAST, NORTH, WEST = (server_user(name, DOMAIN) for name in ("east", "north", "west"))


class LeaderDesk(AccessDesk):
    """The server ``south`` of a domain of three, with a ``layout`` of its file."""

    layout = b"1"
    own_leader = "south"
    others: tuple[str, ...] = ("north", "west")
    joins = False

    def __init__(self) -> None:
        self.awaited: list[InterestAwaited] = []
        self.announced: list[DecentralisedInterestChanged] = []
        super().__init__()

    def start(self) -> None:
        groups = ChannelGroups(b"key", 2, pins={NORTHERN: 1, OWN: 0, "Up": 1}, parents={"Down": "Up"})
        table = LeaderTable(1, ("north", "south"), (Leader(self.own_leader, 1), Leader("north", 1)))
        directory = Directory(groups, table)
        # No other server takes part in the decentralised channel, so its events wait for nobody.
        decentralised = DecentralisedChannels(directory, "south", ("south",), lambda subject: subject == DECENTRALISED)
        channels = OwnChannels(
            directory,
            "south",
            decentralised=decentralised,
            others=self.others,
            layout=self.layout,
            joins=self.joins,
        )
        self._reading_all.clear()
        self.collected.clear()
        self.timers.clear()
        self.broker = Broker(self.recovered(), self.config, channels=channels)
        self.give(ServerStarted())

    def server(self, user: str) -> int:
        """Open the link of a server, and attach it."""
        self._links += 1
        self.give(LinkOpened(self._links, user, "server", is_server=True))
        self.send(self._links, Attach(1, "default", None, True, knows_waits=True))
        return self._links

    def settle(self, *users: str) -> None:
        """Let servers say that their subscriptions are complete."""
        for user in users:
            self.send(self.server(user), SettleInterest())

    def device(self, user: str = BOB) -> int:
        """Attach a device that understands why publishes wait."""
        link = self.open(user, "phone")
        self.send(link, Attach(1, "default", None, True, knows_waits=True))
        return link

    def perform(self, outputs: Sequence[Output]) -> None:
        self.awaited += [each for each in outputs if isinstance(each, InterestAwaited)]
        self.announced += [each for each in outputs if isinstance(each, DecentralisedInterestChanged)]
        super().perform(outputs)

    def answered_to(self, link: int, request: int) -> bool:
        """Return whether a request was answered."""
        return any(each.request == request for each in self.received(link, Done))

    def events(self) -> list[object]:
        """The ``N`` of the accepted events."""
        return [record.event["N"] for record in self.written(Published)]


@pytest.fixture
def desk() -> LeaderDesk:
    return LeaderDesk()


def event(n: int, subject: str = OWN, **more: str) -> Event:
    return Event(subject, {"N": n, **more})


def waits(desk: LeaderDesk, link: int) -> list[str]:
    return [each.reason for each in desk.received(link, PublishesWait)]


def test_events_wait_until_all_servers_have_told_what_they_want(desk: LeaderDesk) -> None:
    bob = desk.device()
    desk.send(bob, Publish(1, event(1)), Publish(2, event(2)))
    assert desk.events() == []
    west = desk.server(WEST)
    desk.send(west, Subscribe(1, OWN, "N >= 0", None, (), this_device_only=False))
    desk.send(west, SettleInterest())
    assert desk.events() == []
    desk.settle(NORTH)
    assert desk.events() == [1, 2]
    assert [each.number for each in desk.received(bob, PublishAccepted)] == [1, 2]
    assert len(desk.received(west, NotifyServer)) == 2, "the server that subscribed meanwhile gets both"


def test_a_restart_needs_no_report_and_another_file_needs_all(desk: LeaderDesk) -> None:
    desk.settle(NORTH, WEST)
    assert [each.server for each in desk.written(InterestSettled)] == ["north", "west"]
    desk.restart()
    desk.send(desk.device(), Publish(1, event(1)))
    assert desk.events() == [1]
    desk.layout = b"2"
    desk.restart(with_rows=True)
    desk.send(desk.device(), Publish(2, event(2)))
    desk.settle(NORTH)
    assert desk.events() == [1]
    desk.settle(WEST)
    assert desk.events() == [1, 2]
    desk.layout = b"1"
    desk.restart()
    desk.send(desk.device(), Publish(3, event(3)))
    assert desk.events() == [1, 2], "what was known under the former file is not known again"


def test_events_wait_again_after_a_rollback(desk: LeaderDesk) -> None:
    """Other servers may have reported more since the copy that the log turned out to be."""
    desk.settle(NORTH, WEST)
    bob = desk.device()
    desk.broker._rollback.found("a test says so")
    desk.send(bob, Publish(1, event(1)))
    desk.settle(NORTH)
    assert desk.events() == []
    desk.settle(WEST)
    assert desk.events() == [1]
    desk.restart()
    desk.send(desk.device(), Publish(2, event(2)))
    assert desk.events() == [1, 2], "what was reported since is remembered"


def test_events_of_servers_wait_too_and_the_order_of_each_publisher_stays(desk: LeaderDesk) -> None:
    west = desk.server(WEST)
    bob = desk.device()
    desk.send(west, PublishFor(5, ALICE, "tablet", 4, 1, raw(event(1)), desk.wall_us))
    desk.send(bob, Publish(1, event(2)), Publish(2, event(3, NORTHERN)), Publish(3, event(4)))
    assert [each.number for each in desk.forwarded()] == [2], "another leader does not wait"
    desk.send(desk.device(ALICE), Publish(1, event(5, DECENTRALISED)))
    assert desk.events() == [5]
    desk.send(bob, Publish(4, event(6, DECENTRALISED)))
    assert desk.events() == [5], "its publisher has earlier events that wait"
    next_west = desk.server(WEST)
    desk.send(next_west, SettleInterest())
    desk.settle(NORTH)
    assert desk.events() == [5, 2, 4, 6], "the link of the server was replaced, so it sends its event again"
    desk.send(next_west, PublishFor(5, ALICE, "tablet", 4, 1, raw(event(1)), desk.wall_us))
    assert desk.events() == [5, 2, 4, 6, 1]


def test_an_event_that_is_repeated_on_a_new_link_is_accepted_once(desk: LeaderDesk) -> None:
    desk.send(desk.device(), Publish(1, event(1)))
    bob = desk.device()
    desk.send(bob, Publish(1, event(1)))
    desk.settle(NORTH, WEST)
    assert desk.events() == [1]
    assert len(desk.received(bob, PublishAccepted)) == 1


def test_a_publisher_has_a_bound_and_what_is_refused_does_not_overtake(desk: LeaderDesk) -> None:
    bob, big = desk.device(), "x" * 2**14
    most = HELD_BYTES_MAX // 2**14
    desk.send(bob, *[Publish(n, event(n, T=big), outbox=9) for n in range(1, most + 3)])
    refused = [each.number for each in desk.received(bob, PublishRefused)]
    assert refused
    assert {each.limit for each in desk.received(bob, PublishRefused)} == {"routes_unknown"}
    desk.settle(NORTH, WEST)
    assert desk.events() == list(range(1, refused[0]))
    desk.send(bob, Publish(most + 3, event(most + 3), outbox=9))
    assert desk.events() == list(range(1, refused[0])), "the first refused one comes first"
    desk.send(bob, *[Publish(n, event(n, T=big), outbox=9) for n in (*refused, most + 3)])
    assert desk.events() == list(range(1, most + 4))


def test_the_operator_and_the_agents_learn_what_is_waited_for(desk: LeaderDesk) -> None:
    bob = desk.device()
    desk.send(bob, Publish(1, event(1)))
    assert desk.awaited == [InterestAwaited(("north", "west"))]
    desk.send(bob, Publish(2, event(2)))
    assert waits(desk, bob) == ["north and west have not reported yet which events to send"]
    desk.settle(NORTH, WEST)
    assert waits(desk, bob)[1:] == [""]
    assert desk.awaited[1:] == [InterestAwaited()]


def test_an_agent_of_an_earlier_version_is_not_told(desk: LeaderDesk) -> None:
    bob = desk.attach(BOB)
    desk.send(bob, Publish(1, event(1)), Publish(2, event(2, NORTHERN)))
    desk.give(LeaderTrouble("north", "it cannot be reached"))
    assert waits(desk, bob) == []


def test_agents_learn_why_a_leader_does_not_answer(desk: LeaderDesk) -> None:
    bob, alice = desk.device(), desk.device(ALICE)
    desk.send(bob, Publish(1, event(1, NORTHERN)), Publish(2, event(2, NORTHERN)))
    desk.give(LeaderTrouble("north", "it cannot be reached"))
    desk.send(bob, Publish(3, event(3, NORTHERN)))
    assert waits(desk, bob) == ["north, which leads their channels: it cannot be reached"]
    assert waits(desk, alice) == []
    desk.send(alice, Publish(1, event(4, NORTHERN)))
    assert waits(desk, alice) == waits(desk, bob)
    desk.give(LeaderTrouble("north", ""))
    assert waits(desk, bob)[1:] == waits(desk, alice)[1:] == [""]
    desk.send(bob, Publish(4, event(5, NORTHERN)))
    assert len(waits(desk, bob)) == 2


def test_only_a_server_may_say_that_its_interest_is_complete(desk: LeaderDesk) -> None:
    bob = desk.device()
    desk.send(bob, SettleInterest())
    assert desk.broker.status(BOB) == "DISCONNECTED", "its link is closed"
    assert desk.written(InterestSettled) == []


def test_a_new_subscription_counts_once_every_server_has_the_present_file(desk: LeaderDesk) -> None:
    desk.settle(NORTH, WEST)
    desk.layout = b"2"
    desk.restart()
    bob = desk.device()
    desk.send(bob, Subscribe(7, OWN, "N >= 0", None, (), this_device_only=False))
    assert not desk.answered_to(bob, 7)
    desk.server(NORTH)
    assert not desk.answered_to(bob, 7)
    desk.server(WEST)
    assert desk.answered_to(bob, 7)
    assert [each.server for each in desk.written(ServerMet)] == ["north", "west"]
    desk.restart()
    bob = desk.device()
    desk.send(bob, Subscribe(8, OWN, "N >= 1", None, (), this_device_only=False))
    assert desk.answered_to(bob, 8)


def test_an_event_that_was_accepted_here_before_its_channel_moved_is_not_accepted_again(desk: LeaderDesk) -> None:
    desk.settle(NORTH, WEST)
    bob = desk.device()
    desk.send(bob, Publish(1, event(1)))
    (accepted,) = desk.received(bob, PublishAccepted)
    desk.layout, desk.own_leader = b"2", "north"
    desk.restart()
    bob = desk.device()
    desk.send(bob, Publish(1, event(1)), Publish(2, event(2)))
    assert desk.received(bob, PublishAccepted) == [accepted]
    assert [each.number for each in desk.forwarded()] == [2]


def test_a_log_with_another_incarnation_knows_nothing(desk: LeaderDesk) -> None:
    desk.settle(NORTH, WEST)
    state, journal = desk.broker.state, desk.broker._journal
    channels = OwnChannels(
        Directory(ChannelGroups(b"key", 1), LeaderTable(1, ("south",), (Leader("south", 1),))), "south"
    )
    channels.others, channels.layout = ("north", "west"), desk.layout
    assert SettledInterest(state, journal, channels, DOMAIN).missing == []
    state.incarnation += 1
    assert SettledInterest(state, journal, channels, DOMAIN).missing == ["north", "west"]


def test_j11_events_do_not_wait_for_a_server_that_joins(desk: LeaderDesk) -> None:
    desk.settle(NORTH, WEST)
    desk.others = ("east", "north", "west")
    for number in (1, 2):
        desk.restart(with_rows=number == 2)
        desk.send(desk.device(), Publish(number, event(number)))
    assert desk.events() == [1, 2]
    desk.layout = b"2"
    desk.restart()
    desk.settle(NORTH, WEST)
    desk.send(desk.device(), Publish(3, event(3)))
    assert desk.events() == [1, 2], "after a change of the file it has to report, as all others"
    desk.settle(EAST)
    assert desk.events() == [1, 2, 3]


def test_j11_an_earlier_copy_of_the_log_waits_for_a_server_that_had_joined(desk: LeaderDesk) -> None:
    desk.settle(NORTH, WEST)
    desk.others = ("east", "north", "west")
    desk.restart()
    assert desk.broker.state.servers["south"].newcomers == {"east"}
    desk.broker._rollback.found_by("north")
    desk.device()
    assert desk.broker.diagnostics.missing == ["east", "north", "west"]
    desk.restart()
    assert desk.broker.diagnostics.missing == ["east", "north", "west"]


class JoiningDesk(LeaderDesk):
    """A server that has joined the domain of ``north`` and ``west``, and is started for the first time."""

    own_leader = "north"
    joins = True


def test_j11_a_server_that_joined_publishes_and_wants_nothing_directly_before_all_know_it() -> None:
    desk = JoiningDesk()
    bob = desk.device()
    desk.send(bob, Publish(1, event(1, DECENTRALISED)))
    desk.send(bob, Subscribe(2, DECENTRALISED, "N > 0", None, (), this_device_only=False))
    desk.server(NORTH)
    assert desk.events() == []
    assert waits(desk, bob) == ["north and west have not reported yet which events to send"]
    assert desk.announced == []
    desk.server(WEST)
    assert desk.events() == [1]
    ((subject, _),) = (entry for each in desk.announced for wanted in each.added.values() for entry in wanted)
    assert subject == DECENTRALISED
    assert waits(desk, bob)[1:] == [""]
    assert [each.server for each in desk.written(ServerMet)] == ["north", "west"]
    desk.restart()
    desk.send(desk.device(), Publish(2, event(2, DECENTRALISED)))
    assert desk.events() == [1, 2], "it need not meet them again"
