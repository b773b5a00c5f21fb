"""Sessions of foreign domains: what they get, what bounds them, and what they may not do (SPEC M-01, decision 0161)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, raw
from tests.broker.office import ADAM, ROLES, refusal
from tests.broker.test_engine_arrivals import EngineAccessDesk
from tests.broker.test_publisher_filters import done, publisher, requested, subscribe, wants
from tests.broker.test_server_sessions import DOMAIN, NORTH, EngineHub, Hub, stream
from wanderbus import protocol
from wanderbus.broker.messages import LeaderEventsLost, LinkOpened
from wanderbus.broker.servers.server_users import domain_of, domain_user
from wanderbus.broker.sessions.drain import moves_in_drain
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Attach,
    Attachment,
    ConfirmFilters,
    Done,
    Filters,
    ImportSession,
    Leave,
    ListEvents,
    MoveSession,
    NotifyAck,
    NotifyGap,
    NotifyServer,
    Publish,
    PublishFor,
    Query,
    RequestFilters,
    RequestRefused,
    SettleInterest,
    Subscribe,
)
from wanderbus.records import Published
from wanderbus.subscription import PATTERN, QueuePolicy, Since

BETA, GAMMA = domain_user("beta.example", DOMAIN), domain_user("gamma.example", DOMAIN)
PAIR = f"pattern pair match A: {SUBJECT} (N == 1) then B: {SUBJECT} (N == 2) within 10 seconds"


def foreign(desk: Desk, user: str = BETA, *, epoch: int = 1) -> int:
    """Open the link of a foreign domain and attach it."""
    desk._links += 1
    desk.give(LinkOpened(desk._links, user, "domain", is_server=True))
    desk.send(desk._links, Attach(epoch, "default", None, True))
    return desk._links


def wanted(desk: Desk, link: int, expression: str = "", subject: str = SUBJECT, **options: Any) -> Done:
    """Subscribe for a foreign domain; the answer must be a grant."""
    answer = desk.ask(link, Subscribe(7, subject, expression, None, (), False, **options))
    assert isinstance(answer, Done), answer
    return answer


def came(desk: Desk, link: int) -> list[object]:
    """The ``N`` of each event that came on a link, or the numbers of a gap."""
    return stream([each for each in desk.out.get(link, ()) if isinstance(each, NotifyServer | NotifyGap)])


def of_gamma(number: int, subject: str = SUBJECT) -> PublishFor:
    """An event that another foreign domain has sent; its ``N`` is its number."""
    event = raw(Event(subject, {"N": number}))
    return PublishFor(number, GAMMA, f"g1/{subject}", 5, number, event, 0, is_outbox=True)


@pytest.fixture
def hub() -> Hub:
    return Hub()


# Users ---------------------------------------------------------------------------------------------------------------


def test_names_of_foreign_domains_and_their_users() -> None:
    assert domain_user("beta.example", "example.org") == "sip:beta.example@domains.example.org"
    assert domain_of("sip:beta.example@domains.example.org", "example.org") == "beta.example"
    assert domain_of("sip:beta.example@domains.example.org", "example.com") is None
    assert domain_of(NORTH, DOMAIN) is None


def test_refusal_of_a_sip_user_who_is_a_foreign_domain(hub: Hub) -> None:
    assert "reserved for another domain" in str(hub.broker.refusal(BETA, "phone", 0))
    link = hub.open(BETA, "phone")
    assert isinstance(hub.out[link][0], RequestRefused)
    assert [each.link for each in hub.dropped_links] == [link]


def test_sets_of_servers_and_foreign_domains_across_a_restart(hub: Hub) -> None:
    foreign(hub)
    hub.server()
    for _ in range(2):
        users = hub.broker._servers
        assert (users.users, users.foreign, users.all) == ({NORTH}, {BETA}, {NORTH, BETA})
        hub.restart()


def test_a_foreign_domain_is_no_server_in_the_listing_of_servers(hub: Hub) -> None:
    foreign(hub)
    hub.server()
    assert set(hub.broker.server_rows()) == {"north"}


# Delivery ------------------------------------------------------------------------------------------------------------


def test_its_events_in_one_order_each_once_a_window_ahead(hub: Hub) -> None:
    hub = Hub(BrokerConfig(unacknowledged_max=2))
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta, "N < 3")
    wanted(hub, beta, "N > 1")
    for n in range(1, 5):
        hub.publish(bob, n)
    assert came(hub, beta) == [1, 2]
    hub.send(beta, NotifyAck(0, 2))
    assert came(hub, beta) == [1, 2, 3, 4]
    hub.send(beta, NotifyAck(0, 4))
    assert not hub.broker.state.queue


def test_unacknowledged_events_on_the_link_of_another_gateway(hub: Hub) -> None:
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta)
    for n in (1, 2, 3):
        hub.publish(bob, n)
    hub.send(beta, NotifyAck(0, 1))
    for epoch in (2, 1):
        again = foreign(hub, epoch=epoch)
        assert came(hub, again) == [2, 3]


def test_a_reader_of_one_subscription_is_no_second_one_of_the_session(hub: Hub) -> None:
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta, reader=3)
    hub.publish(bob, 1)
    assert came(hub, beta) == [1]
    assert hub.broker.readers(beta) == {}


def test_the_attachment_names_what_was_acknowledged(hub: Hub) -> None:
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta)
    for n in (1, 2):
        hub.publish(bob, n)
    hub.send(beta, NotifyAck(0, 1))
    (attachment,) = hub.received(foreign(hub), Attachment)
    assert attachment.taken == 1


def test_events_of_foreign_domains_for_users_and_servers_but_no_other_domain(hub: Hub) -> None:
    alice, beta, north, south = hub.attach(), foreign(hub), hub.server(), hub.server(f"sip:south@servers.{DOMAIN}")
    hub.subscribed(alice)
    hub.subscribed(south)
    wanted(hub, beta)
    hub.send(north, of_gamma(1))
    hub.publish(hub.attach(BOB), 2)
    assert (hub.stream(alice), stream(hub.came(south)), came(hub, beta)) == ([1, 2], [1, 2], [2])


def test_events_that_another_server_has_accepted_are_not_for_a_foreign_domain() -> None:
    desk = AccessDesk()
    beta, bob = foreign(desk), desk.attach(BOB)
    wanted(desk, beta, subject="*")
    desk.arrives(1)
    desk.publish(bob, 2, OWN)
    desk.arrives(3)
    assert came(desk, beta) == [2]


def test_lost_events_of_another_server_are_no_gap_for_a_foreign_domain() -> None:
    desk = AccessDesk()
    beta = foreign(desk)
    wanted(desk, beta, subject="*")
    desk.arrives(1)
    desk.give(LeaderEventsLost("north", 5, 1, 4, 3, "log_keep"))
    assert came(desk, beta) == []


def test_events_that_an_engine_matches_here() -> None:
    hub = EngineHub()
    alice, beta, north = hub.attach(), foreign(hub), hub.server()
    hub.subscribed(alice)
    wanted(hub, beta)
    hub.send(north, of_gamma(1))
    hub.publish(hub.attach(BOB), 2)
    assert (hub.stream(alice), came(hub, beta)) == ([1, 2], [2])


def test_events_of_another_server_that_an_engine_matches_here() -> None:
    desk = EngineAccessDesk("*")
    beta = foreign(desk)
    desk.send(beta, Subscribe(1, "*", "", None, (), False))
    desk.match_all()
    desk.arrives(1)
    desk.publish(desk.attach(BOB), 2, OWN)
    desk.match_all()
    assert came(desk, beta) == [2]


# Interest ------------------------------------------------------------------------------------------------------------


def test_its_subscriptions_are_no_interest_of_this_server_elsewhere() -> None:
    desk = AccessDesk()
    beta = foreign(desk)
    wanted(desk, beta, subject=NORTHERN)
    wanted(desk, beta, subject="*")
    assert desk.changes() == []
    desk.restart()
    assert desk.changes() == []
    assert len(desk.broker.state.subscriptions) == 2


def test_publishing_agents_and_servers_send_what_a_foreign_domain_wants() -> None:
    desk = AccessDesk()
    bob, beta = publisher(desk), foreign(desk)
    desk._links += 1
    north = desk._links
    desk.give(LinkOpened(north, NORTH, "server", is_server=True))
    desk.send(north, Attach(1, "default", None, True))
    for link in (bob, north):
        assert not wants(requested(desk, link, 1, OWN), 1)
    desk.send(beta, Subscribe(1, OWN, "N == 1", None, (), False))
    for link in (bob, north):
        assert done(desk, beta) == []
        newest = desk.received(link, Filters)[-1]
        assert wants(newest, 1)
        desk.send(link, ConfirmFilters(OWN, newest.version))
    assert done(desk, beta) == [1]


def test_a_subscription_that_a_gateway_finds_counts_once_agents_use_wider_filters(hub: Hub) -> None:
    bob, beta = publisher(hub), foreign(hub)
    requested(hub, bob, 1, SUBJECT)
    hub.send(beta, Subscribe(1, SUBJECT, "N == 1", None, (), False), Query(2))
    assert done(hub, beta) == []
    hub.send(bob, ConfirmFilters(SUBJECT, hub.received(bob, Filters)[-1].version))
    assert sorted(done(hub, beta)) == [1, 2]


# Bounds --------------------------------------------------------------------------------------------------------------


def test_bounds_of_users_on_its_queue_and_subscriptions() -> None:
    hub = Hub(BrokerConfig(queue=QueuePolicy(notifications_max=2), user_subscriptions_max=1))
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta)
    answer = hub.ask(beta, Subscribe(8, SUBJECT, "N > 1", None, (), False))
    assert isinstance(answer, RequestRefused)
    assert answer.limit == "user_subscriptions_max"
    hub.close(beta)
    for n in range(1, 6):
        hub.publish(bob, n)
    assert hub.broker.state.sessions[f"{BETA}/default"].waiting == 2
    assert came(hub, foreign(hub)) == [(1, 3), 4, 5]


def test_bytes_of_foreign_domains_count_for_the_bound_of_the_broker() -> None:
    hub = Hub(BrokerConfig(queued_bytes_max=400))
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta)
    hub.close(beta)
    for n in range(1, 61):
        hub.publish(bob, n)
    assert hub.broker.state.sessions[f"{BETA}/default"].dropped


def test_lifetimes_and_permissions_of_users_are_not_its() -> None:
    config = BrokerConfig(lifetime_s_default=1.0, lifetime_s_max=1.0, may_subscribe={"*": ()}, domain_devices_max=1)
    hub = Hub(config)
    beta, gamma, bob = foreign(hub), foreign(hub, GAMMA), hub.attach(BOB)
    for link in (beta, gamma):
        (subscription,) = wanted(hub, link).subscriptions
        assert subscription.expires_us is None
    hub.later(200.0)
    hub.publish(bob, 1)
    assert (came(hub, beta), came(hub, gamma)) == ([1], [1])


@pytest.mark.parametrize(
    "request_",
    [
        Subscribe(1, "", PAIR, None, (), False, language=PATTERN),
        Subscribe(1, SUBJECT, "", None, (), False, since=Since(at_us=0)),
        Subscribe(1, "a*", "", None, (), False),
    ],
)
def test_subscriptions_that_a_foreign_domain_may_not_have(hub: Hub, request_: Subscribe) -> None:
    assert isinstance(hub.ask(foreign(hub), request_), RequestRefused)


# What it may not do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        SettleInterest(),
        protocol.MoveGroup(1, 0, "north"),
        ListEvents(1, SUBJECT, since=Since(at_us=0)),
        ListEvents(1, SUBJECT),
        RequestFilters(1, SUBJECT),
        Publish(1, Event(SUBJECT, {"N": 1})),
        PublishFor(1, BOB, "phone", 1, 1, raw(Event(SUBJECT, {"N": 1})), 0, is_outbox=True),
        PublishFor(1, GAMMA, "g1/Trade", 1, 1, raw(Event(SUBJECT, {"N": 1})), 0, is_outbox=True),
        PublishFor(1, BETA, "b1/Trade", 1, 1, raw(Event(SUBJECT, {"N": 1})), 0),
        protocol.Advertise(1, SUBJECT, ""),
        protocol.Inspect(1, "sessions", None, None, 10),
    ],
)
def test_a_message_that_is_not_for_foreign_domains_closes_the_link(hub: Hub, message: protocol.AgentMessage) -> None:
    beta = foreign(hub)
    hub.send(beta, message)
    (dropped,) = hub.dropped_links
    assert dropped.link == beta
    assert hub.broker.status(BETA) == "DISCONNECTED"
    assert not hub.written(Published)


def test_the_end_of_a_foreign_domain_leaves_no_session(hub: Hub) -> None:
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta)
    hub.publish(bob, 1)
    hub.send(beta, Leave(9))
    state = hub.broker.state
    assert f"{BETA}/default" not in state.sessions
    assert not state.subscriptions
    assert not state.queue
    assert not hub.broker._servers.foreign
    assert hub.received(beta, Done)[-1].request == 9


# What leaves its session alone ----------------------------------------------------------------------------------------


def test_no_warning_of_unread_subscriptions(hub: Hub) -> None:
    beta, bob = foreign(hub), hub.attach(BOB)
    wanted(hub, beta)
    hub.publish(bob, 1)
    hub.later(400.0)
    assert not [each for each in hub.out[beta] if isinstance(each, protocol.NotRead)]


def test_a_session_without_links_stays_however_long_it_is_away() -> None:
    hub = Hub(BrokerConfig(device_grace_s=10.0, tombstone_s=10.0))
    beta = foreign(hub)
    hub.close(beta)
    hub.later(4_000.0)
    assert f"{BETA}/default" in hub.broker.state.sessions


def test_drains_moves_and_imports_leave_the_session_alone() -> None:
    desk = AccessDesk(BrokerConfig(server="south", domain=DOMAIN, roles=ROLES))
    wanted(desk, foreign(desk))
    session = desk.broker.state.sessions[f"{BETA}/default"]
    assert not moves_in_drain(session, desk.broker._servers.reserves)
    adam = desk.attach(ADAM)
    assert "reserved" in refusal(desk, adam, MoveSession(9, BETA, "default", "north"))
    copied = ImportSession(10, GAMMA, "default", 0, is_last=True)
    assert "reserved" in refusal(desk, adam, copied)


def test_a_move_of_a_channel_group_takes_no_subscription_of_a_foreign_domain_along() -> None:
    desk = AccessDesk()
    wanted(desk, foreign(desk), subject=NORTHERN)
    subscribe(desk, desk.attach(), 1, subject=NORTHERN)
    leaders = desk.broker._groups._leaders
    assert leaders is not None
    assert [each.owner for each in leaders._wanted(1)] == [ALICE]
