"""Sessions of other servers of the domain: reserved users, one order, no bounds of users (SPEC J-01, K-02)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.desk import ALICE, BOB, Desk
from tests.broker.engine_desk import EngineDesk
from wanderbus import protocol
from wanderbus.broker.messages import LinkDropped, LinkOpened, LogBegins
from wanderbus.broker.servers.server_users import server_user
from wanderbus.event import Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, BrokerMessage, NotifyAck, NotifyGap, NotifyServer, Purge, RequestRefused
from wanderbus.subscription import QueuePolicy

DOMAIN = "example.org"
NORTH = server_user("north", DOMAIN)


class Hub(Desk):
    """A desk at which other servers have sessions."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        super().__init__(msgspec.structs.replace(config or BrokerConfig(), domain=DOMAIN))

    def server(self, user: str = NORTH, *, resume: int | None = None) -> int:
        """Open the link of a server and attach it to its session; ``resume`` is the number that it has got to."""
        self._links += 1
        self.give(LinkOpened(self._links, user, "server", is_server=True))
        position = None if resume is None else Position(self.epoch(user), resume)
        self.send(self._links, Attach(1, "default", position, True))
        return self._links

    def came(self, link: int) -> list[BrokerMessage]:
        """The notifications and gaps that the server has got on this link."""
        return [each for each in self.out.get(link, ()) if isinstance(each, NotifyServer | NotifyGap)]


class EngineHub(Hub, EngineDesk):
    """A hub whose events an engine matches."""


def stream(messages: Sequence[BrokerMessage]) -> list[object]:
    """The ``N`` of each event, or ``(first, last)`` of a gap."""
    return [
        (each.first, each.last) if isinstance(each, NotifyGap) else protocol.decode_event(bytes(each.event))["N"]
        for each in messages
        if isinstance(each, NotifyServer | NotifyGap)
    ]


@pytest.fixture
def hub() -> Hub:
    return Hub()


def test_no_sip_user_may_be_a_server(hub: Hub) -> None:
    refusal = hub.broker.refusal(NORTH, "phone", 0)
    assert "reserved for a server" in str(refusal)
    link = hub.open(NORTH, "phone")
    assert isinstance(hub.out[link][0], RequestRefused)
    assert hub.dropped_links == [LinkDropped(link, str(refusal))]
    assert hub.broker.refusal(f"sip:north@{DOMAIN}", "phone", 0) is None


def test_no_server_may_be_a_user(hub: Hub) -> None:
    hub.give(LinkOpened(99, ALICE, "server", is_server=True))
    assert [each.link for each in hub.dropped_links] == [99]
    assert "is no server of this domain" in hub.dropped_links[0].reason


def test_without_a_domain_there_are_no_servers() -> None:
    desk = Desk()
    assert desk.broker.refusal(NORTH, "phone", 0) is None
    desk.give(LinkOpened(99, "sip:north@servers.", "server", is_server=True))
    assert [each.link for each in desk.dropped_links] == [99]


def test_a_server_gets_all_its_subscriptions_in_one_order_each_event_once(hub: Hub) -> None:
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north, "N < 3")
    hub.subscribed(north, "N < 100")
    hub.subscribed(north, subject="Other")
    for n in (1, 2, 5):
        hub.publish(bob, n)
    hub.publish(bob, 9, "Other")
    came = hub.came(north)
    assert stream(came) == [1, 2, 5, 9]
    assert [(each.number, each.before) for each in came if isinstance(each, NotifyServer)] == [
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 3),
    ]


def test_it_is_sent_a_window_ahead_of_its_acknowledgements(hub: Hub) -> None:
    hub = Hub(BrokerConfig(unacknowledged_max=2))
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north, "N < 3")
    hub.subscribed(north, "N >= 3")
    for n in range(1, 6):
        hub.publish(bob, n)
    assert stream(hub.came(north)) == [1, 2]
    hub.send(north, NotifyAck(0, 1))
    assert stream(hub.came(north)) == [1, 2, 3]
    hub.send(north, NotifyAck(0, 3))
    assert stream(hub.came(north)) == [1, 2, 3, 4, 5]


def test_unacknowledged_events_come_again_from_the_number_that_it_names(hub: Hub) -> None:
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north)
    for n in range(1, 5):
        hub.publish(bob, n)
    hub.send(north, NotifyAck(0, 1))
    hub.restart()
    north, bob = hub.server(resume=2), hub.attach(BOB, epoch=2)
    assert stream(hub.came(north)) == [3, 4]
    hub.publish(bob, 5)
    assert stream(hub.came(north)) == [3, 4, 5]
    hub.send(north, NotifyAck(0, 5))
    assert not hub.broker.state.queue


def test_the_bounds_of_users_are_not_its() -> None:
    config = BrokerConfig(
        queue=QueuePolicy(notifications_max=2, bytes_max=200, age_max_s=1.0),
        user_subscriptions_max=1,
        user_queued_bytes_max=200,
        queued_bytes_max=400,
        user_filter_bytes_max=1,
        user_filter_characters_per_s=1.0,
        filter_work_max=1,
        lifetime_s_default=1.0,
        lifetime_s_max=1.0,
        devices_max=1,
        backlog_per_s=1.0,
        may_subscribe={NORTH: ()},
        refuse_when_full=("*",),
    )
    hub = Hub(config)
    north = hub.server()
    for n in range(50):
        hub.subscribed(north, f"N != -{n + 1} AND N != -{n + 2}")
    hub.close(north)
    bob = hub.attach(BOB)
    for n in range(1, 21):
        hub.publish(bob, n)
    assert hub.accepted(bob) == list(range(1, 21))
    hub.later(200.0)
    hub.publish(bob, 21)
    assert stream(hub.came(hub.server())) == list(range(1, 22))


def test_the_bounds_of_other_domains_are_not_its() -> None:
    hub = Hub(BrokerConfig(domain_users_max=1, domain_devices_max=1))
    bob, links = hub.attach(BOB), [hub.server(server_user(name, DOMAIN)) for name in ("north", "south", "west")]
    for link in links:
        hub.subscribed(link)
    hub.publish(bob, 1)
    assert [stream(hub.came(link)) for link in links] == [[1]] * 3


def test_the_order_is_kept_if_one_record_has_several_events() -> None:
    hub = EngineHub()
    hub.answers = False
    while hub.match():
        pass
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north, "N < 2")
    hub.subscribed(north, "N == 2")
    hub.subscribed(north, "N > 2 OR N == 1")
    for n in (1, 2, 3, 1):
        hub.publish(bob, n)
    assert stream(hub.came(north)) == []
    while hub.match():
        pass
    assert stream(hub.came(north)) == [1, 2, 3, 1]


def test_queues_of_servers_take_no_room_from_users() -> None:
    hub = Hub(BrokerConfig(queued_bytes_max=400))
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north)
    hub.close(north)
    for n in range(1, 31):
        hub.publish(bob, n)
    hub.restart()
    bob, alice = hub.attach(BOB, epoch=2), hub.attach(reads=False)
    hub.subscribe(alice, reads=False)
    hub.publish(bob, 31)
    session = hub.broker.state.sessions[f"{ALICE}/default"]
    assert (session.waiting, session.dropped) == (1, {})
    for n in range(32, 62):
        hub.publish(bob, n)
    assert session.dropped
    assert hub.broker.state.sessions[f"{NORTH}/default"].waiting == 61


def test_the_log_bounds_what_waits_for_it(hub: Hub) -> None:
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north, "N != 2")
    hub.subscribed(north, "N > 2")
    hub.close(north)
    offsets = []
    for n in range(1, 6):
        offsets.append(hub.broker.state.offset)
        hub.publish(bob, n)
    hub.give(LogBegins(offsets[3]))
    north = hub.server()
    (gap, *_) = hub.came(north)
    assert isinstance(gap, NotifyGap)
    assert {loss.reason for loss in gap.lost} == {"log_keep"}
    assert stream(hub.came(north)) == [(1, 2), 4, 5]


def test_the_log_keeps_what_waits_before_an_event_that_an_engine_matched_late() -> None:
    hub = EngineHub(BrokerConfig(spark_subjects=("Slow",)))
    hub.answers = False
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north, subject="*")
    hub.close(north)
    hub.publish(bob, 1, "Slow")
    second = hub.broker.state.offset
    hub.publish(bob, 2)
    hub.answers = True
    hub.publish(bob, 3, "Slow")
    hub.give(LogBegins(second))
    assert stream(hub.came(hub.server())) == [2, (2, 2), 3]


def test_an_event_that_waits_for_one_of_its_subscriptions_is_in_no_gap() -> None:
    hub = Hub(BrokerConfig(unacknowledged_max=1))
    north, bob = hub.server(), hub.attach(BOB)
    first = hub.subscribed(north, "N < 5")
    hub.subscribed(north, "N == 4")
    for n in (1, 2, 4, 3, 4):
        hub.publish(bob, n)
    hub.send(north, Purge(9, NORTH, "default", first.id))
    for number in range(1, 5):
        hub.send(north, NotifyAck(0, number))
    assert stream(hub.came(north)) == [1, (2, 2), 4, (4, 4), 4]


def test_a_server_gets_no_warnings_of_unread_subscriptions(hub: Hub) -> None:
    north, bob = hub.server(), hub.attach(BOB)
    hub.subscribed(north)
    hub.publish(bob, 1)
    hub.later(400.0)
    assert not [each for each in hub.out[north] if isinstance(each, protocol.NotRead)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(0, 9)),
            st.tuples(st.just("take"), st.integers(0, 3)),
            st.tuples(st.just("reopen"), st.booleans()),
            st.tuples(st.just("purge"), st.integers(0, 2)),
        ),
        max_size=40,
    ),
    st.integers(1, 4),
)
def test_every_event_comes_once_or_in_a_gap_in_the_order_of_the_log(steps: list[tuple[str, int]], window: int) -> None:
    hub = Hub(BrokerConfig(unacknowledged_max=window))
    link, bob = hub.server(), hub.attach(BOB)
    wanted = [hub.subscribed(link, each).id for each in ("N < 5", "N > 2", "N == 1 OR N == 4")]
    got: list[int] = []
    covered: set[int] = set()
    cursor = read = taken = 0

    def receive() -> None:
        nonlocal cursor, read
        for each in hub.came(link)[read:]:
            read += 1
            if isinstance(each, NotifyServer):
                first = last = each.number
                got.extend([last] if last > cursor else [])
                assert each.before <= cursor
            elif isinstance(each, NotifyGap):
                first, last = each.first, each.last
                covered.update(range(max(first, cursor + 1), last + 1))
            assert first <= last
            cursor = max(cursor, last)

    for life, (what, n) in enumerate(steps, 2):
        if what == "publish":
            hub.publish(bob, n)
        elif what == "take":
            taken = max(taken, cursor - n)
            hub.send(link, NotifyAck(0, taken))
        elif what == "purge":
            hub.send(link, Purge(life, NORTH, "default", wanted[n]))
        else:
            hub.close(link)
            if n:
                hub.restart()
                bob = hub.attach(BOB, epoch=life)
            link, read = hub.server(resume=cursor if n else None), 0
        receive()
    newest = hub.broker.state.sessions[f"{NORTH}/default"].next - 1
    for _ in range(newest + 1):
        hub.send(link, NotifyAck(0, cursor))
        receive()
    assert got == sorted(set(got))
    assert not covered & set(got)
    assert covered | set(got) == set(range(1, newest + 1))
    assert not hub.broker.state.queue


def test_filters_of_servers_count_as_satisfied_beyond_their_work_and_are_not_evaluated() -> None:
    """The server matches the event again, within the bounds of its users."""
    hub = Hub(BrokerConfig(user_event_filter_work_max=20_000))
    north, bob = hub.server(), hub.attach(BOB)
    for n in range(30):
        hub.subscribed(north, f"UPPER(CONCAT(Text, Text)) = 'X{n}'", language="cesql")
    hub.publish(bob, 1, Text="short")
    assert stream(hub.came(north)) == []
    hub.publish(bob, 2, Text="y" * 10_000)
    assert stream(hub.came(north)) == [2]
    hub.publish(bob, 3, Text="short")
    assert stream(hub.came(north)) == [2]
