"""Foreign domains at servers with decentralised channels: each server sends what it accepts (decision 0161)."""

from __future__ import annotations

import pytest

from tests.access.test_decentralised_events import subscribed
from tests.access.town import Town
from tests.broker.desk import ALICE, BOB, SUBJECT
from tests.broker.test_foreign_domains import BETA, came, foreign, wanted
from tests.broker.test_foreign_publishes import of_beta, refused
from wanderbus.records import Arrived, Published


@pytest.mark.parametrize("spark_subjects", [(), ("*",)])
def test_events_of_decentralised_channels_come_from_the_server_that_accepted_them(
    spark_subjects: tuple[str, ...],
) -> None:
    town = Town(spark_subjects=spark_subjects)
    alice = town["s1"].attach(ALICE)
    subscribed(town, "s1", alice)
    links = {name: foreign(town[name]) for name in ("s1", "s2")}
    for name, link in links.items():
        wanted(town[name], link)
    for n, name in enumerate(("s1", "s2", "s3"), 1):
        town[name].publish(town[name].attach(BOB, device=name), n)
    town.run()
    for name in ("s1", "s2", "s3"):
        town[name].match()
    town.run()
    assert sorted(town["s1"].stream(alice), key=str) == [1, 2, 3]
    assert {name: came(town[name], link) for name, link in links.items()} == {"s1": [1], "s2": [2]}


def test_a_subscription_of_a_foreign_domain_brings_no_event_from_other_servers() -> None:
    town = Town()
    wanted(town["s1"], foreign(town["s1"]), subject=SUBJECT)
    town.run()
    town["s2"].publish(town["s2"].attach(BOB), 1)
    town.run()
    assert not town["s1"].written(Arrived)


@pytest.mark.parametrize("is_required", [True, False])
def test_an_event_of_a_foreign_domain_is_accepted_where_its_gateway_publishes_it(is_required: bool) -> None:
    """The server advertises the channel itself where that is required, and accepts the event when it is repeated."""
    town = Town(is_required=is_required)
    alice = town["s2"].attach(ALICE)
    subscribed(town, "s2", alice)
    beta = foreign(town["s3"])
    wanted(town["s3"], beta)
    town["s3"].send(beta, of_beta(1))
    town.run()
    if is_required:
        assert refused(town["s3"], beta) == [(1, "advertisement_pending")]
        town["s3"].send(beta, of_beta(1))
        town.run()
    assert [record.acceptance.user for record in town["s3"].written(Published)] == [BETA]
    assert town["s2"].stream(alice) == [1]
    assert came(town["s3"], beta) == []
