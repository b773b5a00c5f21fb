"""Filters for other servers, whose agents use them; the channel is led here (SPEC N-02, N-03)."""

from __future__ import annotations

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import BOB
from tests.broker.test_publisher_filters import LEASE_S, done, publisher, requested, subscribe, wants
from wanderbus.broker.messages import LinkOpened
from wanderbus.broker.servers.server_users import server_user
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, ConfirmFilters, Done, Filters, Query, RequestFilters, Subscribe

NORTH = server_user("north", "example.org")


class LeaderDesk(AccessDesk):
    """A desk of the server ``south``, which leads :data:`OWN`; the server ``north`` has links to it."""

    def server(self, *, epoch: int = 1, user: str = NORTH) -> int:
        """Open and attach a link of a server."""
        self._links += 1
        self.give(LinkOpened(self._links, user, "server", is_server=True))
        self.send(self._links, Attach(epoch, "default", None, True))
        return self._links


@pytest.fixture
def desk() -> LeaderDesk:
    return LeaderDesk()


def test_a_server_gets_the_filters_of_channels_that_are_led_here(desk: LeaderDesk) -> None:
    alice, north = desk.attach(), desk.server()
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    answer = requested(desk, north, 1, OWN)
    assert [n for n in range(3) if wants(answer, n)] == [1]
    assert answer.lease_s == LEASE_S
    assert requested(desk, north, 2, NORTHERN).expressions is None


def test_the_permissions_of_users_are_not_those_of_servers() -> None:
    desk = LeaderDesk(BrokerConfig(server="south", domain="example.org", may_publish={BOB: (OWN,)}))
    assert requested(desk, desk.server(), 1, OWN).expressions == ()


def test_a_wider_subscription_waits_for_each_server_and_each_agent(desk: LeaderDesk) -> None:
    alice, north, bob = desk.attach(), desk.server(), publisher(desk)
    requested(desk, north, 1, OWN)
    requested(desk, bob, 1, OWN)
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    for link in (north, bob):
        assert done(desk, alice) == []
        desk.send(link, ConfirmFilters(OWN, desk.received(link, Filters)[-1].version))
    assert done(desk, alice) == [1]


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_server_that_attaches_again_keeps_its_leases(desk: LeaderDesk, epoch: int) -> None:
    """Its agents have not given up their filters, as an agent has that attaches."""
    alice = desk.attach()
    requested(desk, desk.server(), 1, OWN)
    desk.later(2.0)
    desk.server(epoch=epoch)
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    desk.later(LEASE_S - 2.1)
    assert done(desk, alice) == []
    desk.later(0.2)
    assert done(desk, alice) == [1]


def test_a_confirmation_on_a_new_link_replaces_earlier_filters_of_the_server(desk: LeaderDesk) -> None:
    alice = desk.attach()
    requested(desk, desk.server(), 1, OWN)
    north = desk.server()
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    answer = requested(desk, north, 2, OWN, confirms=False)
    assert wants(answer, 1)
    assert done(desk, alice) == []
    desk.send(north, ConfirmFilters(OWN, answer.version))
    assert done(desk, alice) == [1]


def test_a_confirmation_of_another_life_of_a_server_replaces_nothing(desk: LeaderDesk) -> None:
    alice = desk.attach()
    requested(desk, desk.server(epoch=1), 1, OWN)
    north = desk.server(epoch=2)
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    requested(desk, north, 2, OWN)
    assert done(desk, alice) == []
    desk.later(LEASE_S)
    assert done(desk, alice) == [1]


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("epoch", [1, 2])
def test_new_subscriptions_wait_after_a_restart_for_servers_that_may_have_filters(
    desk: LeaderDesk, epoch: int, with_rows: bool
) -> None:
    requested(desk, desk.server(), 1, OWN)
    if with_rows:
        desk.save()
    desk.restart(with_rows=with_rows)
    alice = desk.attach()
    north = desk.server(epoch=epoch)
    requested(desk, north, 1, OWN)
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    desk.send(north, ConfirmFilters(OWN, desk.received(north, Filters)[-1].version))
    assert done(desk, alice) == []
    desk.later(LEASE_S)
    assert done(desk, alice) == [1]


def test_the_mark_of_a_server_outlasts_its_next_attachment(desk: LeaderDesk) -> None:
    requested(desk, desk.server(), 1, OWN)
    desk.server(epoch=2)
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    assert done(desk, alice) == []


def test_the_mark_of_a_server_precedes_its_filters(desk: LeaderDesk) -> None:
    north = desk.server()
    desk.held = True
    desk.send(north, RequestFilters(1, OWN))
    assert desk.received(north, Filters) == []
    desk.sync()
    assert len(desk.received(north, Filters)) == 1


def test_a_restart_delays_nobody_if_no_server_has_had_filters_for_a_lease(desk: LeaderDesk) -> None:
    desk.server()
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 1, "N == 1", subject=OWN)
    assert done(desk, alice) == [1]
    requested(desk, desk.server(), 1, OWN)
    desk.later(LEASE_S + 0.1)
    desk.give()
    desk.broker._filters.sweep()
    desk.give()
    desk.restart()
    alice = desk.attach()
    subscribe(desk, alice, 2, "N == 2", subject=OWN)
    assert done(desk, alice) == [2]


def test_a_server_that_asks_for_its_subscriptions_waits_until_they_count(desk: LeaderDesk) -> None:
    """A link may break before the answer: what the server finds then has to count."""
    bob = publisher(desk)
    requested(desk, bob, 1, OWN)
    desk.send(desk.server(), Subscribe(1, OWN, "N == 1", None, (), False))
    north = desk.server()
    desk.send(north, Query(0))
    assert desk.received(north, Done) == []
    desk.send(bob, ConfirmFilters(OWN, desk.received(bob, Filters)[-1].version))
    (answer,) = desk.received(north, Done)
    assert [each.expression for each in answer.subscriptions] == ["N == 1"]
