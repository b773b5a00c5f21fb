"""Sessions made from copies, whose content nobody vouches for (SPEC J-05)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.broker.access_desk import AccessDesk
from tests.broker.desk import ALICE, BOB, SUBJECT, rows_of
from tests.broker.office import ADAM, OLGA, ROLES, Office, answers, listed, refusal
from wanderbus.broker.sessions import session_copies
from wanderbus.broker.sessions.handover_messages import (
    ASK_S,
    OthersAsked,
    SessionFound,
    SessionQuestion,
    SessionReported,
    SessionWanted,
)
from wanderbus.event import CopiedItem, Event, Loss
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import ImportSession, Listing, NotifyGap, RequestRefused, Unsubscribe
from wanderbus.records import SessionImported
from wanderbus.subscription import PATTERN, QueuePolicy, Subscription

TRADES = Subscription("north-1-7", BOB, "elsewhere", SUBJECT, "N > 0")
NEWS = Subscription("north-1-9", BOB, "elsewhere", "News", "")
_requests = itertools.count(1)


def event(n: int, *subscriptions: str) -> CopiedItem:
    return CopiedItem(Event(SUBJECT, {"N": n}), subscriptions or (TRADES.id,))


def piece(place: int, *content: Subscription | CopiedItem, last: bool = False, name: str = "copied") -> ImportSession:
    subscription = next((each for each in content if isinstance(each, Subscription)), None)
    items = tuple(each for each in content if isinstance(each, CopiedItem))
    return ImportSession(next(_requests), ALICE, name, place, subscription, items, last)


def imported(office: Office, link: int, *content: Subscription | CopiedItem, name: str = "copied") -> Any:
    """Import a session, a piece for each part; return the last answer."""
    answer: Any = None
    for place, each in enumerate(content):
        (answer,) = answers(office, link, piece(place, each, last=place == len(content) - 1, name=name))
        if isinstance(answer, RequestRefused):
            break
    return answer


def visit(office: Office, user: str = ALICE) -> int:
    return office.attach(user, "visitor", session="operations")


def test_j05_a_copy_becomes_a_session_that_is_read_and_live() -> None:
    office = Office()
    lost = CopiedItem(None, (), (Loss(TRADES.id, "queue.bytes_max", 3), Loss(TRADES.id, "purged", 1)))
    answer = imported(office, visit(office), TRADES, NEWS, event(1), lost, event(2, TRADES.id, NEWS.id))
    assert isinstance(answer, Listing)
    assert answer.rows == ({"subscriptions": 2, "notifications": 2, "session": "copied"},)
    office.restart()
    session = office.broker.state.sessions[f"{ALICE}/copied"]
    assert (session.queued, session.waiting, session.dropped) == (3, 2, {"queue.bytes_max": 3, "purged": 1})
    assert session.generated == session.queued + sum(session.dropped.values())
    own = office.broker.state.subscriptions[session.subscriptions[0]].subscription
    assert (own.owner, own.session, own.expression) == (ALICE, "copied", "N > 0")
    phone, bob = office.attach(session="copied"), office.attach(BOB, "desk")
    office.publish(bob, 3)
    office.publish(bob, 0)
    assert office.stream(phone) == [1, (2, 4), (5, 5), 2, 3]
    assert [each.lost for each in office.received(phone, NotifyGap)] == [
        (Loss(own.id, "queue.bytes_max", 3),),
        (Loss(own.id, "purged", 1),),
    ]
    office.take(phone, 7, session.subscriptions[0])
    office.take(phone, 6, session.subscriptions[1])
    assert (session_of(office).queued, session_of(office).queued_bytes) == (0, 0)


def session_of(office: Office) -> Any:
    return office.broker.state.sessions[f"{ALICE}/copied"]


def test_j05_nothing_in_a_copy_is_taken_for_what_is_known_here() -> None:
    office = Office()
    mine, bob = office.subscribed(office.attach()), office.attach(BOB, "desk")
    office.publish(bob, 1)
    forged = Subscription(mine.id, ALICE, "default", SUBJECT, "N > 5")
    assert isinstance(imported(office, visit(office), forged, event(666, mine.id)), Listing)
    assert office.waiting(mine.id) == 1
    (own,) = session_of(office).subscriptions
    assert own != mine.id
    assert own in office.broker.state.subscriptions
    assert office.broker.state.subscriptions[mine.id].subscription.expression == ""
    events = office.broker.state.events.rows
    assert len(events) == 2
    assert {each.origin for each in events} == {"wb", "wb.import"}


def test_j05_two_copies_at_one_instant_get_different_ids() -> None:
    office = Office()
    link = visit(office)
    for name in ("one", "two"):
        assert isinstance(imported(office, link, TRADES, event(1), event(2), name=name), Listing)
    assert len(office.broker.state.events.rows) == 4
    assert len(office.broker.state.subscriptions) == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([event(1)], "no subscription before it"),
        ([TRADES, TRADES], "two subscriptions"),
        ([TRADES, event(1, TRADES.id, TRADES.id)], "name each of its subscriptions once"),
        ([TRADES, CopiedItem(Event(SUBJECT, {"N": 1}))], "name each of its subscriptions once"),
        ([TRADES, CopiedItem(Event("", {}), (TRADES.id,))], "the subject must have"),
        ([TRADES, CopiedItem(None, (), (Loss(TRADES.id, "x", 2**40),))], "impossible count"),
        ([TRADES, CopiedItem(None, (), (Loss(TRADES.id, "x", 0),))], "impossible count"),
        ([TRADES, CopiedItem(None, (), (Loss(TRADES.id, "x" * 65, 1),))], "impossible count"),
        ([TRADES, CopiedItem(None, (), (Loss(NEWS.id, "x", 1),))], "no subscription before it"),
        ([Subscription("1", ALICE, "s", SUBJECT, "N >")], "expected"),
        ([Subscription("1", ALICE, "s", SUBJECT, "", device="phone")], "of one device alone"),
        ([Subscription("1", ALICE, "s", SUBJECT, "PATTERN A", language=PATTERN)], "a pattern"),
        ([Subscription("1", ALICE, "s", SUBJECT, "", expires_us=1)], "lifetime"),
        ([Subscription("1", ALICE, "s", "secret", "")], "may not subscribe"),
        ([TRADES, *map(event, range(5))], "queue.notifications_max"),
        ([*(Subscription(f"{n}", ALICE, "s", f"S{n}", "") for n in range(4))], "3 subscriptions"),
    ],
)
def test_j05_a_bad_copy_is_refused_and_leaves_nothing(content: list[Any], complaint: str) -> None:
    queue = QueuePolicy(notifications_max=4)
    config = BrokerConfig(roles=ROLES, queue=queue, user_subscriptions_max=3, may_subscribe={ALICE: ("[!s]*",)})
    office = Office(config)
    link = visit(office)
    before = rows_of(office.broker.state)
    answer = imported(office, link, *content, CopiedItem(None))
    assert isinstance(answer, RequestRefused), answer
    assert complaint in answer.reason
    assert rows_of(office.broker.state) == before
    assert "interrupted" in refusal(office, link, piece(len(content), last=True))


def test_j05_a_copy_never_replaces_a_session_in_which_something_is() -> None:
    office = Office()
    link = visit(office)
    office.subscribed(office.attach(session="copied"))
    assert "has a session 'copied' already" in refusal(office, link, piece(0, TRADES))
    assert "cannot be the name" in refusal(office, link, piece(0, TRADES, name="operations"))
    assert "cannot be the name" in refusal(office, link, piece(0, TRADES, name="a/b"))


def test_j05_a_session_that_was_made_meanwhile_is_not_replaced() -> None:
    office = Office()
    link = visit(office)
    listed(office, link, piece(0, TRADES))
    office.subscribed(office.attach(session="copied"))
    assert "has a session 'copied' already" in refusal(office, link, piece(1, event(1), last=True))


def test_j05_a_copy_comes_in_place_of_an_empty_session_with_its_counters_and_devices() -> None:
    office = Office()
    phone, bob = office.attach(session="copied"), office.attach(BOB, "desk")
    trades = office.subscribed(phone)
    office.publish(bob, 1)
    office.take(phone, 1)
    office.ask(phone, Unsubscribe(99, trades.id))
    office.later(BrokerConfig().tombstone_s + (BrokerConfig().sweep_s or 0))
    answer = imported(office, visit(office), TRADES, event(2))
    assert isinstance(answer, Listing), answer
    assert (session_of(office).delivered, session_of(office).generated, session_of(office).next) == (1, 2, 3)
    again = office.attach(session="copied")
    assert office.stream(again) == [2]


@pytest.mark.parametrize("asker", [BOB, OLGA, ADAM])
def test_j05_only_administrators_import_sessions_for_others(asker: str) -> None:
    office = Office()
    answer = imported(office, visit(office, asker), TRADES, event(1))
    assert isinstance(answer, Listing) == (asker == ADAM)


def test_j05_copies_in_pieces_are_bounded_and_idle_ones_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_copies, "COPIES_MAX", 2)
    office = Office()
    links = [office.attach(ALICE, f"visitor{n}", session="operations") for n in range(3)]
    for n, link in enumerate(links[:2]):
        listed(office, link, piece(0, TRADES, name=f"c{n}"))
    assert "2 sessions are imported" in refusal(office, links[2], piece(0, TRADES, name="c2"))
    office.later(session_copies.IDLE_S_MAX)
    listed(office, links[2], piece(0, TRADES, name="c2"))
    assert "interrupted" in refusal(office, links[0], piece(1, last=True, name="c0"))
    office.close(links[1])
    listed(office, links[0], piece(0, TRADES, name="c0"))


def test_j05_pieces_count_for_the_link_on_which_they_come() -> None:
    office = Office()
    link, other = visit(office), office.attach(ALICE, "other", session="operations")
    listed(office, link, piece(0, TRADES))
    assert "interrupted" in refusal(office, other, piece(1, event(1), last=True))
    listed(office, link, piece(1, event(1)))
    assert "interrupted" in refusal(office, link, piece(1, event(1)))
    assert office.written(SessionImported) == []


def test_j05_the_answer_comes_once_the_session_is_durable() -> None:
    office = Office()
    link = visit(office)
    listed(office, link, piece(0, TRADES))
    office.held = True
    assert answers(office, link, piece(1, last=True)) == []
    office.sync()
    assert isinstance(office.out[link][-1], Listing)


# In a domain ---------------------------------------------------------------------------------------------------------

QUESTION = SessionQuestion(ALICE, "copied")


class DomainOffice(Office, AccessDesk):
    """An office whose server is in a domain."""

    others = ("north", "east")

    def __init__(self) -> None:
        self.said: list[Output] = []
        """Questions and answers to other servers."""
        super().__init__()

    def perform(self, outputs: Any) -> None:
        self.said += [each for each in outputs if isinstance(each, OthersAsked | SessionFound)]
        super().perform(outputs)


def begun() -> tuple[DomainOffice, int]:
    """An office that asks the other servers before it imports a session, and the link of the import."""
    office = DomainOffice()
    link = visit(office)
    assert answers(office, link, piece(0, TRADES, event(1), last=True)) == []
    assert office.said == [OthersAsked(QUESTION)]
    return office, link


def test_j05_a_session_that_another_server_has_is_not_made_again() -> None:
    office, link = begun()
    office.give(SessionReported("north", QUESTION, ()), SessionReported("east", QUESTION, (), is_here=True))
    (refused,) = office.received(link, RequestRefused)
    assert "at east already" in refused.reason
    office.later(ASK_S)
    assert f"{ALICE}/copied" not in office.broker.state.sessions


@pytest.mark.parametrize("answering", [("north", "east"), ("east",), ()])
def test_j05_a_session_that_no_server_has_is_made_once_they_have_answered_or_are_down(answering: Any) -> None:
    office, link = begun()
    for server in answering:
        office.give(SessionReported(server, QUESTION, ()))
    assert len(office.received(link, Listing)) == (len(answering) == 2)
    office.later(ASK_S)
    assert len(office.received(link, Listing)) == 1
    office.give(SessionWanted("north", QUESTION))
    assert office.said[1:] == [SessionFound("north", QUESTION, (), is_here=True)]


def test_j05_a_session_that_was_made_while_others_were_asked_stays_as_it_is() -> None:
    office, link = begun()
    other = office.attach(device="other", session="operations")
    (refused,) = answers(office, other, piece(0, TRADES, last=True))
    assert "other sessions are imported" in refused.reason
    office.subscribed(office.attach(session="copied"))
    office.later(ASK_S)
    (late,) = office.received(link, RequestRefused)
    assert "has a session 'copied' already" in late.reason
