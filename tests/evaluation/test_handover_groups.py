"""Moves of channel groups and of sessions while some messages are slow: rows, messages and order (SPEC J-08, S-07)."""

from __future__ import annotations

import math
from functools import partial

import pytest

from wanderbus.channels.directory import LeaderTable, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.evaluation.handover.fabric import Delay, Fabric, plane_delay_s
from wanderbus.evaluation.handover.group_moves import GroupMoves
from wanderbus.evaluation.handover.population import PublishedEvent
from wanderbus.evaluation.handover.rendezvous import RendezvousNetwork
from wanderbus.evaluation.handover.sessions import MobileSession
from wanderbus.event import Event
from wanderbus.simulation.world import World
from wanderbus.subscription import Subscription

KEY = bytes(32)


PLACES = [(0.0, 0.0), (9_000.0, 0.0), (0.0, 9_000.0), (9_000.0, 9_000.0)]


def one_slow_way(slow: tuple[int, int] | None) -> Delay:
    """Return the delays where the way from one server to another takes half a second longer."""
    usual_s = plane_delay_s(PLACES)
    return lambda source, target: usual_s(source, target) + 0.5 * ((source, target) == slow)


class Domain:
    """Four servers; the first one leads all groups, and the last two have a user each with two equal subscriptions."""

    def __init__(self, *, covers: bool = True, slow: tuple[int, int] | None = None) -> None:
        self.world = World(1)
        self.fabric = Fabric(self.world, one_slow_way(slow))
        servers = tuple(f"s{number}" for number in range(4))
        table = LeaderTable(1, servers, first_table(GROUPS, servers[:1], KEY).leaders)
        self.groups = ChannelGroups(KEY)
        self.group = self.groups.group_of("A")
        self.network = RendezvousNetwork(self.fabric, 4, self.groups, table, covers=covers)
        self.moves = GroupMoves(self.network)
        self.sessions = [self.session(server) for server in (2, 3)]
        for each in self.sessions:
            self.network.serve(each)
        self.world.run(math.inf)
        self.fabric.forget_counts()

    def publish(self, events: int) -> None:
        """Publish an event every 2 ms, at each server in turn."""
        for number in range(events):
            event = PublishedEvent(number, Event("A", {"x": 9}))
            self.world.after(0.002 * number, partial(self.network.publish, number % 4, event))

    def check(self, events: int) -> None:
        """Check that every session has every event once, in the order of the channel."""
        self.world.run(math.inf)
        for session in self.sessions:
            assert sorted(each.published.number for each in session.delivered) == list(range(events))
            order = [each.published.acceptance for each in session.delivered]
            assert order == sorted(order)

    def session(self, server: int) -> MobileSession:
        owner = f"sip:user{server}@example.org"
        wanted = [Subscription(f"u{server}-1-{place}", owner, "default", "A", "x > 5") for place in (1, 2)]
        return MobileSession(server, wanted, server)


@pytest.mark.parametrize(("covers", "rows"), [(True, 2), (False, 4)])
def test_a_group_moves_with_the_rows_of_the_servers_that_want_it(covers: bool, rows: int) -> None:
    domain = Domain(covers=covers)
    domain.moves.move("A", 1)
    domain.world.run(math.inf)
    [moved] = domain.moves.ended
    assert moved.rows == rows
    assert (domain.network.rows(0, domain.group), domain.network.rows(1, domain.group)) == (0, rows)
    assert domain.fabric.messages["copy"] == 2 * rows, "asked of the new leader, and removed at the old one"
    assert domain.fabric.messages["group"] == 3 * (2 * 3) + 2 + 2 * rows, "and answered"
    assert {domain.network.leader(server, domain.group) for server in range(4)} == {1}
    domain.moves.move("A", 1)
    assert len(domain.moves.ended) == 1, "it is there already"


def test_events_keep_their_order_over_moves_of_their_group() -> None:
    domain = Domain()
    for turn in range(4):
        domain.world.after(0.1 * turn, partial(domain.moves.move, "A", 1 - turn % 2))
    domain.publish(400)
    domain.check(400)
    assert len(domain.moves.ended) == 4
    assert {each.origin for session in domain.sessions for each in session.delivered} == {0, 1}


@pytest.mark.parametrize("slow", [(2, 1), (0, 2), (1, 2)])
def test_a_new_leader_lacks_no_interest_and_overtakes_no_event(slow: tuple[int, int]) -> None:
    domain = Domain(slow=slow)
    domain.publish(1_000)
    domain.world.after(0.3, partial(domain.moves.move, "A", 1))
    domain.check(1_000)


@pytest.mark.parametrize("slow", [(3, 0), (0, 3), (0, 2), (2, 3), (1, 0)])
def test_a_session_misses_no_event_and_gets_none_again(slow: tuple[int, int]) -> None:
    """The user walks from server 2 to server 3, back as soon as the session is there, and later on to the leader."""
    domain = Domain(slow=slow)
    domain.publish(2_000)
    (session, _), network = domain.sessions, domain.network
    walk = partial(network.walk, session)
    for after_s, server in ((0.3, 3), (0.31, 2), (3.0, 0)):
        domain.world.after(after_s, partial(walk, server))
    domain.check(2_000)
    assert (session.owner, network.moves) == (0, 3)


def test_moves_wait_for_one_another() -> None:
    domain = Domain()
    for subject in ("A", "B", "C"):
        domain.moves.move(subject, 2)
    domain.world.run(math.inf)
    led = {domain.network.leader(0, domain.groups.group_of(subject)) for subject in ("A", "B", "C")}
    assert led == {2}
    assert len(domain.moves.ended) == len({domain.groups.group_of(subject) for subject in ("A", "B", "C")})
