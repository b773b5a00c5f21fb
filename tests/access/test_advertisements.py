"""Advertisements at three brokers whose decentralised channels require them (SPEC A-17, K-07)."""

from __future__ import annotations

import pytest

from tests.access.test_decentralised_events import CAROL, subscribed
from tests.access.town import KEY, SERVERS, Town
from tests.broker.desk import ALICE, BOB, SUBJECT, rows_of
from wanderbus.broker.messages import DiskFull
from wanderbus.broker.sessions.handover_messages import FenceSession, ImportSession
from wanderbus.broker.state.exported_session import encode_export, export_session
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.decentralised_channels import DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.merging import Merging
from wanderbus.protocol import Advertise, Attach, Done, Leave, PublishRefused, RequestRefused, Withdraw
from wanderbus.records import AdvertisementsCounted, Arrived

PENDING = "advertisement_pending"


@pytest.fixture
def town() -> Town:
    return Town(is_required=True)


def test_only_places_that_require_an_advertisement_get_it() -> None:
    plain, needy = Merging("none"), Merging("none", for_advertisers=True)
    directory = Directory(ChannelGroups(KEY, 4), first_table(4, ("s1", "s2"), KEY))
    for default, expected in ((plain, {"A": [1], "B": [], "O": [], "*": [1]}), (needy, {"A": [1], "*": [1]})):
        channels = DecentralisedChannels(
            *(directory, "s1", SERVERS, lambda subject: subject != "O"),
            lambda subject, default=default: needy if subject == "A" else default,  # type: ignore[misc]
            (plain, needy),
        )
        for subject, places in expected.items():
            leaders = ("s1", "s2") if subject == "*" else (directory.lookup(subject).server,)
            assert channels.advertised_at(subject) == [(each, place) for each in leaders for place in places]
    assert [channels.requires_advertisement(each) for each in ("A", "B", "O")] == [True, True, False]


def advertise(town: Town, name: str, link: int, expression: str = "", subject: str = SUBJECT) -> int:
    """Request an advertisement at a server, and let all messages arrive; return the number of the request."""
    post = town[name]
    post._requests += 1
    post.send(link, Advertise(post._requests, subject, expression))
    town.run()
    return post._requests


def withdraw(town: Town, name: str, link: int, expression: str = "", subject: str = SUBJECT) -> None:
    town[name].send(link, Withdraw(999, subject, expression))
    town.run()


def done(town: Town, name: str, link: int) -> list[int]:
    """The requests that were answered on a link."""
    return [each.request for each in town[name].received(link, Done)]


def limits(town: Town, name: str, link: int) -> list[str | None]:
    """The limits of the refused publishes on a link."""
    return [each.limit for each in town[name].received(link, PublishRefused)]


def interest_at(town: Town, name: str) -> set[str]:
    """The filters of the other servers that a server has."""
    routes = town[name].broker.state.decentralised.routes
    return {each.expression for route in routes.routes() if route[1].origin != name for each in routes.filters(route)}


def test_interest_goes_to_the_server_of_an_advertiser_alone(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice, "N < 5")
    assert [interest_at(town, name) for name in SERVERS] == [set()] * 3
    advertise(town, "s3", bob, "all N < 3")
    assert [interest_at(town, name) for name in SERVERS] == [set(), set(), {"N < 5"}]
    subscribed(town, "s2", alice, "N > 7")
    assert interest_at(town, "s3") == {"N < 5"}
    withdraw(town, "s3", bob, "all N < 3")
    assert interest_at(town, "s3") == set()


def test_an_event_without_a_matching_advertisement_is_refused_in_one_line(town: Town) -> None:
    alice, bob, carol = town["s2"].attach(ALICE), town["s3"].attach(BOB), town["s3"].attach(CAROL)
    subscribed(town, "s2", alice)
    advertise(town, "s3", bob, "N < 3")
    town["s3"].publish(bob, 1)
    town["s3"].publish(bob, 4)
    town["s3"].publish(bob, 1, "Other")
    town["s3"].publish(carol, 1)
    town.run()
    assert limits(town, "s3", bob) == [None, None]
    (refused,) = town["s3"].received(carol, PublishRefused)
    assert refused.reason == (
        f"no advertisement of {CAROL} matches this event of 'Trade'; advertise it before publishing"
    )
    assert town["s2"].stream(alice) == [1]


def test_any_device_of_a_user_may_publish_what_one_has_advertised(town: Town) -> None:
    phone, tablet = town["s3"].attach(BOB), town["s3"].attach(BOB, "tablet")
    advertise(town, "s3", phone)
    town["s3"].publish(tablet, 1)
    assert town["s3"].accepted(tablet) == [1]


def test_it_is_answered_when_this_server_has_what_all_want(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice)
    town.kill("s1")
    request = advertise(town, "s3", bob)
    town["s3"].publish(bob, 1)
    assert (done(town, "s3", bob), limits(town, "s3", bob)) == ([], [PENDING])
    town.restart("s1")
    town.later(3)
    assert done(town, "s3", bob) == [request]
    town["s3"].publish(bob, 2)
    town.run()
    assert town["s2"].stream(alice) == [2]


def test_it_does_not_wait_for_servers_that_publish_nothing(town: Town) -> None:
    """A server that is down takes no part, as soon as its interest is known."""
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice)
    town.kill("s2")
    request = advertise(town, "s3", bob)
    assert done(town, "s3", bob) == [request]
    town["s3"].publish(bob, 1)
    assert town["s3"].accepted(bob) == [1]
    town.restart("s2")
    alice = town["s2"].attach(ALICE)
    town.later(3)
    assert town["s2"].stream(alice) == [1]


def test_a_subscription_waits_only_for_servers_of_advertisers(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    town.kill("s3")
    town.restart("s3")
    bob = town["s3"].attach(BOB)
    advertise(town, "s3", bob, "all N > 5")
    town.kill("s3")
    subscribed(town, "s2", alice, "N < 3")
    town["s2"].send(alice, Advertise(77, SUBJECT))
    with pytest.raises(AssertionError, match="does not count"):
        subscribed(town, "s2", alice, "N < 8")


@pytest.mark.parametrize("with_rows", [False, True])
def test_it_survives_a_restart_also_while_the_leader_is_away(town: Town, with_rows: bool) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice)
    advertise(town, "s3", bob)
    town.kill("s1")
    town["s3"].save()
    town.restart("s3", with_rows=with_rows)
    bob = town["s3"].attach(BOB, epoch=2)
    town["s3"].publish(bob, 1)
    town.run()
    assert town["s2"].stream(alice) == [1]
    request = advertise(town, "s3", bob)
    assert done(town, "s3", bob) == [request]
    assert len(town["s3"].written(AdvertisementsCounted)) == 1
    assert rows_of(town["s3"].recovered(from_log_alone=True)) == rows_of(town["s3"].broker.state)


def test_a_restart_leaves_no_moment_without_interest(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice, "N < 5")
    advertise(town, "s3", bob)
    town.restart("s3")
    assert interest_at(town, "s3") == {"N < 5"}
    subscribed(town, "s2", alice, "N > 7")
    town.restart("s1")
    town.later(3)
    assert interest_at(town, "s3") == {"N < 5", "N > 7"}
    bob = town["s3"].attach(BOB, epoch=2)
    for n in (4, 6, 8):
        town["s3"].publish(bob, n)
    town.run()
    assert town["s2"].stream(alice) == [4, 8]
    assert len(town["s2"].written(Arrived)) == 2


def test_it_ends_with_its_device(town: Town) -> None:
    phone, tablet = town["s3"].attach(BOB), town["s3"].attach(BOB, "tablet")
    advertise(town, "s3", phone, "N < 3")
    advertise(town, "s3", tablet, "N > 7")
    town["s3"].send(tablet, Leave(5))
    assert [row.expression for row in town["s3"].broker.state.advertisements.values()] == ["N < 3"]
    for n in (1, 8):
        town["s3"].publish(phone, n)
    assert (town["s3"].accepted(phone), limits(town, "s3", phone)) == ([1], [None])
    phone = town["s3"].open(BOB, "phone")
    town["s3"].send(phone, Attach(2, "default", None, keep=False))
    assert not town["s3"].broker.state.advertisements


def test_a_withdrawal_answers_what_waits_for_the_advertisement(town: Town) -> None:
    bob = town["s3"].attach(BOB)
    town.kill("s1")
    request = advertise(town, "s3", bob)
    withdraw(town, "s3", bob)
    assert done(town, "s3", bob) == [999]
    (refused,) = town["s3"].received(bob, RequestRefused)
    assert (refused.request, refused.reason) == (request, "the advertisement was withdrawn before it counted")
    town.restart("s1")
    town.later(3)
    town["s3"].publish(bob, 1)
    assert limits(town, "s3", bob) == [None]


def test_it_moves_with_its_session(town: Town) -> None:
    alice, bob = town["s2"].attach(ALICE), town["s3"].attach(BOB)
    subscribed(town, "s2", alice)
    advertise(town, "s3", bob)
    exported = export_session(town["s3"].broker.state, BOB, "default", 2)
    assert not exported.advertisements[0].counts, "the next server has to get the interest first"
    town["s3"].give(FenceSession(BOB, "default", 2))
    town.run()
    assert (interest_at(town, "s3"), len(town["s3"].broker.state.advertisements)) == (set(), 0)
    town["s1"].give(ImportSession(encode_export(exported)))
    bob = town["s1"].attach(BOB)
    town.run()
    town["s1"].publish(bob, 1)
    town.run()
    assert town["s2"].stream(alice) == [1]


def test_a_full_disk_takes_no_advertisement(town: Town) -> None:
    bob = town["s3"].attach(BOB)
    town["s3"].give(DiskFull())
    town["s3"].send(bob, Advertise(1, SUBJECT))
    assert [each.limit for each in town["s3"].received(bob, RequestRefused)] == ["disk_full"]


def test_filters_of_advertisements_are_bounded_in_work(town: Town) -> None:
    bob = town["s3"].attach(BOB)
    advertise(town, "s3", bob, "Text contains 'x'")
    town["s3"].broker._advertisements._work._filter_max = 10
    town["s3"].publish(bob, 1, Text="y" * 1_000)
    (refused,) = town["s3"].received(bob, PublishRefused)
    assert refused.limit is None
    assert refused.reason == (
        f"the filters of the advertisements of {BOB} are too costly for this event (filter_work_max)"
    )


def test_a_filter_that_cannot_be_read_any_more_matches_nothing(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = town["s3"].attach(BOB)
    advertise(town, "s3", bob, "N < 3")
    load = BrokerState.load
    town["s3"].save()

    def loaded(self: BrokerState, rows: object, offset: int) -> None:
        load(self, rows, offset)  # type: ignore[arg-type]
        for row in self.advertisements.values():
            row.expression = "N <"

    monkeypatch.setattr(BrokerState, "load", loaded)
    town.restart("s3", with_rows=True)
    bob = town["s3"].attach(BOB, epoch=2)
    town["s3"].publish(bob, 1)
    assert limits(town, "s3", bob) == [None]
