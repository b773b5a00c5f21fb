"""Counts of accepted events by channel group (SPEC J-08)."""

from __future__ import annotations

import pytest

from tests.broker.access_desk import OWN
from tests.broker.desk import ALICE, BOB
from tests.broker.office import OLGA, Office, inspected
from tests.broker.test_foreign_domains import foreign, wanted
from tests.broker.test_held_publishes import DECENTRALISED, NORTH, WEST, LeaderDesk, event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Publish
from wanderbus.records import Published


class LoadDesk(LeaderDesk):
    """A leader that Bob may ask as an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.config = BrokerConfig(server="south", domain="example.org", roles={BOB: "operator"})
        self.restart()

    def loads(self) -> dict[int | None, tuple[int, int, int]]:
        """Return events, bytes and notifications of each group."""
        rows = inspected(self, self.attach(BOB, "desk"), "loads")
        return {row["group"]: (row["events"], row["event_bytes"], row["notifications"]) for row in rows}


@pytest.fixture
def desk() -> LoadDesk:
    return LoadDesk()


def test_j08_each_accepted_event_counts_for_its_group_with_the_servers_that_get_it(desk: LoadDesk) -> None:
    assert desk.loads() == {}
    desk.settle(NORTH, WEST)
    for user in (NORTH, WEST):
        desk.subscribed(desk.server(user), "N >= 2", subject=OWN)
    desk.subscribed(desk.attach(ALICE), "N >= 1", subject=OWN)
    bob = desk.device()
    desk.send(bob, *(Publish(n, event(n)) for n in (1, 2, 3)))
    desk.send(bob, Publish(3, event(3)), Publish(4, event(4, "Northern")), Publish(5, event(5, DECENTRALISED)))
    accepted = [record.acceptance for record in desk.written(Published)]
    sizes = [len(each.event) for each in accepted]
    assert [each.number for each in accepted] == [1, 2, 3, 5], "no repeat, and nothing of another leader"
    assert desk.loads() == {0: (3, sum(sizes[:3]), 4), None: (1, sizes[3], 0)}


def test_notifications_for_a_foreign_domain_count_for_their_group_because_its_session_does_not_move(
    desk: LoadDesk,
) -> None:
    desk.settle(NORTH, WEST)
    wanted(desk, foreign(desk), subject=OWN)
    desk.send(desk.device(), Publish(1, event(1)))
    (counts,) = desk.loads().values()
    assert counts[2] == 1


def test_a_server_without_a_domain_counts_nothing() -> None:
    office = Office()
    office.publish(office.attach(), 1)
    assert inspected(office, office.attach(OLGA), "loads") == []
