"""Transfers of the end point of a session to a dormant instance of its application (SPEC L-07)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from tests.broker.access_desk import AccessDesk
from tests.broker.desk import ALICE, BOB
from tests.broker.office import ADAM, OLGA, Office, answers, refusal
from wanderbus.broker.sessions import transfers
from wanderbus.broker.sessions.handover_messages import (
    ASK_S,
    DORMANT_MAX,
    FenceSession,
    OthersAsked,
    SessionFound,
    SessionQuestion,
    SessionReported,
    SessionWanted,
)
from wanderbus.machine import Output
from wanderbus.protocol import (
    AwaitTransfer,
    Kick,
    Listing,
    Notify,
    RequestRefused,
    Subscribe,
    SubscriptionEnded,
    TransferSession,
    Unsubscribe,
)
from wanderbus.records import Left

_requests = itertools.count(1)


class Town(Office):
    """Alice's phone reads a session, a dormant instance waits at her desk, and Bob publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.phone = self.attach(ALICE, "phone", session="ticker")
        self.ticks = self.subscribed(self.phone)
        self.bob = self.attach(BOB, "radio")
        self.watch = self.attach(ALICE, "watch", session="operations", reads=False)
        self.asker = self.attach(ALICE, "shell", session="operations", reads=False)

    def dormant(self, name: str = "desk", link: int | None = None, request: int | None = None) -> list[Any]:
        return answers(self, link or self.watch, AwaitTransfer(request or next(_requests), "ticker", name))

    def transfer(self, link: int | None = None, device: str | None = None, to: str = "desk") -> list[Any]:
        return answers(self, link or self.asker, TransferSession(next(_requests), ALICE, "ticker", to, device))

    def join(self, device: str = "pc") -> int:
        """The dormant instance starts, and makes the same subscription."""
        return self.attach(ALICE, device, session="ticker")

    def members(self) -> list[str]:
        return self.broker.state.sessions[f"{ALICE}/ticker"].devices


@pytest.fixture
def town() -> Town:
    return Town()


def numbers(town: Town, link: int) -> list[tuple[object, bool]]:
    streams = zip(town.stream(link), [each.redelivered for each in town.received(link, Notify)], strict=True)
    return list(streams)


def test_l07_the_dormant_instance_goes_on_where_the_first_one_stopped(town: Town) -> None:
    assert town.dormant() == []
    for n in (1, 2, 3):
        town.publish(town.bob, n)
    town.take(town.phone, 1)
    assert town.transfer() == []
    (ended,) = town.received(town.phone, SubscriptionEnded)
    assert (ended.subscription, ended.reason) == (town.ticks, "transferred")
    town.publish(town.bob, 4)
    town.take(town.phone, 2)
    assert town.received(town.watch, Listing) == []
    town.take(town.phone, 3)
    (start,) = town.received(town.watch, Listing)
    assert start.rows == ({"user": ALICE, "session": "ticker", "name": "desk"},)
    town.publish(town.bob, 5)
    pc = town.join()
    (answer,) = town.received(town.asker, Listing)
    assert answer.rows == start.rows
    town.publish(town.bob, 6)
    assert town.stream(town.phone) == [1, 2, 3]
    assert numbers(town, pc) == [(4, False), (5, False), (6, False)]
    town.close(town.phone)
    assert town.members() == ["pc"]
    assert [(each.device, each.reason) for each in town.written(Left)] == [("phone", "transferred")]
    town.take(pc, 6)
    assert town.waiting(town.ticks.id) == 0


def test_l07_an_unfinished_notification_comes_again_and_says_so(town: Town) -> None:
    town.dormant()
    town.publish(town.bob, 1)
    town.transfer()
    town.later(transfers.STOP_S_MAX - 0.1)
    assert town.received(town.watch, Listing) == []
    town.later(0.1)
    assert len(town.received(town.watch, Listing)) == 1
    town.publish(town.bob, 2)
    assert numbers(town, town.join()) == [(1, True), (2, False)]


def test_l07_a_device_that_is_away_is_replaced_at_once(town: Town) -> None:
    town.dormant()
    town.close(town.phone)
    town.publish(town.bob, 1)
    town.transfer()
    assert len(town.received(town.watch, Listing)) == 1
    assert numbers(town, town.join()) == [(1, False)]
    assert town.members() == ["pc"]


def test_l07_an_instance_on_the_same_device_may_be_the_next_one(town: Town) -> None:
    town.dormant()
    town.close(town.phone)
    town.transfer()
    again = town.join("phone")
    assert len(town.received(town.asker, Listing)) == 1
    assert town.members() == ["phone"]
    town.publish(town.bob, 1)
    assert town.stream(again) == [1]


def test_l07_if_the_instance_does_not_join_the_first_device_keeps_everything(town: Town) -> None:
    town.dormant()
    town.transfer()
    town.publish(town.bob, 1)
    town.later(transfers.JOIN_S_MAX)
    (refused,) = town.received(town.asker, RequestRefused)
    assert "has not joined within 30 s" in refused.reason
    assert town.members() == ["phone"]
    town.close(town.phone)
    assert town.stream(town.attach(ALICE, "phone", epoch=2, session="ticker")) == [1]


def test_l07_an_instance_that_ends_at_once_fails_the_transfer(town: Town) -> None:
    town.dormant()
    town.transfer()
    assert town.dormant() == []
    (refused,) = town.received(town.asker, RequestRefused)
    assert "'desk' has ended without joining" in refused.reason
    assert town.transfer() == [], "the dormant instance waits again"


def test_l07_a_start_whose_answer_was_lost_is_answered_again(town: Town) -> None:
    town.dormant(request=77)
    town.transfer()
    town.close(town.watch)
    town.watch = town.attach(ALICE, "watch", session="operations", reads=False)
    (start,) = town.dormant(request=77)
    assert isinstance(start, Listing)


def test_l07_readers_that_are_opened_again_meanwhile_get_nothing(town: Town) -> None:
    town.dormant()
    town.publish(town.bob, 1)
    town.transfer()
    town.close(town.phone)
    (start,) = town.received(town.watch, Listing)
    assert start.rows
    town.publish(town.bob, 2)
    phone = town.attach(ALICE, "phone", session="ticker")
    assert town.stream(phone) == []
    assert len(town.received(phone, SubscriptionEnded)) == 1
    assert town.received(town.asker, Listing) == [], "the phone is not the dormant instance"
    assert [n for n, _ in numbers(town, town.join())] == [1, 2]


def test_l07_subscriptions_that_are_not_kept_are_held_by_the_next_instance() -> None:
    town = Town()
    town.ask(town.phone, Subscribe(9, "News", "", None, (), False, is_kept=False))
    town.dormant()
    town.transfer()
    town.join()
    town.close(town.phone)
    rows = town.broker.state.subscriptions.values()
    assert {row.subscription.subject: row.holders for row in rows} == {"Trade": (), "News": ("pc",)}


def test_l07_only_the_device_that_is_named_gives_way(town: Town) -> None:
    tablet = town.attach(ALICE, "tablet", session="ticker")
    town.dormant()
    assert "no device 'car'" in str(town.transfer(device="car"))
    town.transfer(device="phone")
    town.join()
    town.close(town.phone)
    town.publish(town.bob, 1)
    assert (town.members(), town.stream(tablet)) == (["tablet", "pc"], [1])


def test_l07_a_former_device_that_is_back_in_time_stays(town: Town) -> None:
    town.dormant()
    town.transfer()
    town.join()
    town.attach(ALICE, "phone", epoch=2, session="ticker")
    town.later(1)
    assert town.members() == ["phone", "pc"]


@pytest.mark.parametrize("asker", [BOB, OLGA, ADAM])
def test_l07_dormant_instances_are_the_users_own(town: Town, asker: str) -> None:
    stranger = town.attach(asker, "laptop", session="operations", reads=False)
    town.dormant(link=stranger)
    assert "none waits" in str(town.transfer())
    town.dormant()
    reason = str(town.transfer(link=stranger))
    assert ("need the role 'administrator'" in reason) == (asker != ADAM)


def test_l07_requests_that_make_no_sense_are_refused(town: Town) -> None:
    town.dormant("desk")
    town.dormant("car")
    assert "'ticker' (waiting: car, desk)" in refusal(
        town, town.asker, TransferSession(next(_requests), ALICE, "ticker", "x")
    )
    assert "no session 'none'" in refusal(town, town.asker, TransferSession(next(_requests), ALICE, "none", "desk"))
    assert "another device waits as 'desk'" in refusal(town, town.asker, AwaitTransfer(7, "ticker", "desk"))
    assert "has a name of" in refusal(town, town.asker, AwaitTransfer(7, "ticker", "../x"))
    town.close(town.watch)
    assert "none waits" in str(town.transfer())
    assert answers(town, town.asker, AwaitTransfer(8, "ticker", "desk")) == []


def test_l07_a_server_that_had_the_session_names_the_one_that_has_it(town: Town) -> None:
    town.give(FenceSession(ALICE, "ticker", 2, "north", (town.ticks.id,)))
    assert "no session 'ticker' here; north has it" in str(town.transfer())


def test_l07_dormant_instances_are_bounded(town: Town) -> None:
    for n in range(DORMANT_MAX):
        assert town.dormant(f"d{n}") == []
    assert "16 dormant instances" in str(town.dormant("more"))
    assert town.dormant("d0") == []


def test_l07_a_transfer_is_requested_once_and_again_on_a_new_link(town: Town) -> None:
    town.dormant()
    town.dormant("car")
    town.publish(town.bob, 1)
    town.transfer()
    assert "on its way to 'desk'" in str(town.transfer(to="car"))
    assert "on its way to 'desk'" in str(town.transfer())
    town.close(town.asker)
    town.asker = town.attach(ALICE, "shell", session="operations", reads=False)
    assert town.transfer() == []
    town.take(town.phone, 1)
    town.join()
    assert len(town.received(town.asker, Listing)) == 1


def test_l07_a_dormant_instance_that_has_gone_fails_the_transfer(town: Town) -> None:
    town.dormant()
    town.publish(town.bob, 1)
    town.transfer()
    town.close(town.watch)
    town.take(town.phone, 1)
    (refused,) = town.received(town.asker, RequestRefused)
    assert "'desk' has gone" in refused.reason


def test_l07_a_session_that_is_discarded_meanwhile_is_not_transferred(town: Town) -> None:
    town.dormant()
    town.transfer()
    town.send(town.asker, Unsubscribe(1, town.ticks.id))
    town.send(town.asker, Kick(2, ALICE, "phone", True))
    (refused,) = town.received(town.asker, RequestRefused)
    assert "it is over" in refused.reason


# In a domain ---------------------------------------------------------------------------------------------------------

QUESTION = SessionQuestion(ALICE, "ticker", "desk")
START = SessionQuestion(ALICE, "ticker", "desk", starts=True)


class DomainTown(Town, AccessDesk):
    """A town whose server is in a domain with ``north`` and ``east``."""

    def __init__(self) -> None:
        self.said: list[Output] = []
        """Questions and answers to other servers."""
        super().__init__()

    def perform(self, outputs: Sequence[Output]) -> None:
        self.said += [each for each in outputs if isinstance(each, OthersAsked | SessionFound)]
        super().perform(outputs)


@pytest.fixture
def domain_town() -> DomainTown:
    return DomainTown()


def test_l07_an_instance_that_waits_at_another_server_is_started_there(domain_town: DomainTown) -> None:
    town = domain_town
    town.publish(town.bob, 1)
    assert town.transfer() == []
    assert town.said == [OthersAsked(QUESTION)]
    assert town.received(town.phone, SubscriptionEnded) == [], "it may wait nowhere"
    town.give(SessionReported("east", QUESTION, ("car",)), SessionReported("north", QUESTION, ("desk",)))
    assert len(town.received(town.phone, SubscriptionEnded)) == 1
    town.publish(town.bob, 2)
    assert town.said == [OthersAsked(QUESTION)], "the phone has not finished"
    town.take(town.phone, 1)
    assert town.said[1:] == [OthersAsked(START, "north")]
    town.give(SessionReported("north", START, ("desk",)))
    town.later(transfers.STOP_S_MAX)
    pc = town.join()
    assert numbers(town, pc) == [(2, False)]
    assert len(town.received(town.asker, Listing)) == 1
    town.close(town.phone)
    assert town.members() == ["pc"]


@pytest.mark.parametrize(("reports", "reason"), [((("east", ("car",)),), "(waiting: car)"), ((), "(none waits; ")])
def test_l07_nothing_is_stopped_for_an_instance_that_waits_nowhere(
    domain_town: DomainTown, reports: Sequence[tuple[str, tuple[str, ...]]], reason: str
) -> None:
    assert domain_town.transfer() == []
    for server, names in reports:
        domain_town.give(SessionReported(server, QUESTION, names))
    domain_town.later(ASK_S)
    (refused,) = domain_town.received(domain_town.asker, RequestRefused)
    assert reason in refused.reason
    domain_town.give(SessionReported("north", QUESTION, ("desk",)))
    assert domain_town.received(domain_town.phone, SubscriptionEnded) == []
    assert domain_town.transfer() == [], "it may be requested again"


def test_l07_an_instance_that_has_gone_meanwhile_ends_the_transfer(domain_town: DomainTown) -> None:
    domain_town.transfer()
    domain_town.give(SessionReported("north", QUESTION, ("desk",)), SessionReported("east", START, ()))
    assert domain_town.received(domain_town.asker, RequestRefused) == []
    domain_town.give(SessionReported("north", START, ()))
    (refused,) = domain_town.received(domain_town.asker, RequestRefused)
    assert "has gone" in refused.reason
    assert domain_town.members() == ["phone"]


def test_l07_a_server_starts_an_instance_for_the_one_that_has_the_session(domain_town: DomainTown) -> None:
    town = domain_town
    for number in range(DORMANT_MAX):
        town.dormant(f"a{number}", town.attach(ALICE, f"a{number}", session="operations", reads=False))
    town.dormant()
    town.give(SessionWanted("north", QUESTION))
    assert town.said == [SessionFound("north", QUESTION, ("desk",), is_here=True)]
    assert town.received(town.watch, Listing) == []
    town.give(SessionWanted("north", START), SessionWanted("north", START))
    first, second = town.said[1:]
    assert first == SessionFound("north", START, ("desk",), is_here=True)
    assert isinstance(second, SessionFound)
    assert (len(second.names), "desk" in second.names) == (DORMANT_MAX, False)
    (start,) = town.received(town.watch, Listing)
    assert start.rows == ({"user": ALICE, "session": "ticker", "name": "desk"},)
