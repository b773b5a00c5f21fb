"""Servers that ask each other who owns a session, on links that are function calls (SPEC J-01, L-06)."""

from __future__ import annotations

import msgspec
import pytest

from wanderbus.broker.state.rows import AwaitedRow, SessionRow
from wanderbus.machine import CancelTimer, Input, Output, SetTimer, TimerFired
from wanderbus.peers import owner_messages, session_owners
from wanderbus.peers.far_servers import FarServerMet
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.owner_messages import (
    OWNER_PREFIX,
    CallPostponed,
    CallRedirected,
    CallServed,
    OwnerAnswered,
    OwnerAsked,
    OwnerWanted,
)
from wanderbus.peers.session_owners import (
    ANSWER_S,
    FIRST_LINKS_S,
    LOOK_S,
    OUTAGE_S,
    POSTPONED_S,
    RETURN_S,
    SessionOwners,
)

ALICE = "sip:alice@example.org"
BOB = "sip:bob@example.org"
LATER = FIRST_LINKS_S
SOUTH = "sip:broker@192.0.2.3:5070"
BETA = "sip:broker@beta"
EAST, NORTH = 1, 2
"""Links of south to these servers."""


class Rows:
    """The sessions of a server."""

    server = "south"
    is_draining = False

    def __init__(self, *rows: SessionRow) -> None:
        self.rows = rows
        self.exports: set[str] = set()
        self.awaited: dict[str, AwaitedRow] = {}

        self.publishers: set[tuple[str, str]] = set()

    def has_published(self, user: str, device: str) -> bool:
        return (user, device) in self.publishers

    def sessions_of(self, user: str) -> tuple[SessionRow, ...]:
        return tuple(each for each in self.rows if each.user == user)


def session(user: str = ALICE, **values: object) -> SessionRow:
    return msgspec.structs.replace(SessionRow(user, "default", 1), **values)


class South:
    """The server ``south``, with what it has sent and decided."""

    def __init__(self, *rows: SessionRow, links: tuple[int, ...] = (EAST, NORTH)) -> None:
        self.rows = Rows(*rows)
        self.machine = SessionOwners(("east", "north"), self.rows, (SOUTH,))
        self.now = 0.0
        self.asked: list[tuple[int, OwnerAsked | OwnerAnswered]] = []
        self.decided: list[CallServed | CallRedirected | CallPostponed] = []
        self.closed: list[CloseServerLink] = []
        self.timers: dict[object, float] = {}
        assert self.machine.start(self.now) == [ConnectServer("east"), ConnectServer("north")]
        for link in links:
            self.open(link)
        self.now = LATER

    def open(self, link: int, server: str | None = None) -> None:
        self.give(ServerLinkOpened(link, server or server_at(link), is_ours=True))

    def close(self, link: int) -> None:
        self.give(ServerLinkClosed(link, server_at(link), "it failed"))

    def give(self, *inputs: Input | Output) -> None:
        for each in self.machine.step(inputs, self.now):
            match each:
                case SendOnServerLink(link=link, payload=payload):
                    assert payload[:1] == OWNER_PREFIX
                    self.asked.append((link, owner_messages.decode(payload[1:])))
                case CallServed() | CallRedirected() | CallPostponed():
                    self.decided.append(each)
                case CloseServerLink():
                    self.closed.append(each)
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case _:
                    raise AssertionError(each)

    def call(self, call: str = "call", user: str = ALICE, name: str = "", former: str = "") -> None:
        self.give(OwnerWanted(call, user, name, former))

    def answer(
        self,
        link: int,
        request: int = 1,
        contact: str = "",
        after: tuple[str, int] = ("", 0),
        *,
        takes_at: str = "",
        is_exact: bool = False,
    ) -> None:
        contacts, takes = ((each,) if each else () for each in (contact, takes_at or contact))
        payload = owner_messages.encode(OwnerAnswered(request, contacts, *after, takes, is_exact))[1:]
        self.give(ServerMessageReceived(link, server_at(link), payload))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for key in [key for key, at in self.timers.items() if at <= self.now]:
            del self.timers[key]
            self.give(TimerFired(key))


def server_at(link: int) -> str:
    return "east" if link % 2 else "north"


def test_the_call_of_a_user_of_this_server_is_served_without_a_question() -> None:
    south = South(session(subscriptions=["a"]))
    south.call()
    assert south.decided == [CallServed("call")]
    assert south.asked == []


def test_all_servers_are_asked_and_the_owner_gets_the_call() -> None:
    south = South()
    south.call()
    assert south.asked == [(EAST, OwnerAsked(1, ALICE)), (NORTH, OwnerAsked(1, ALICE))]
    south.answer(EAST)
    assert south.decided == []
    south.answer(NORTH, contact="sip:broker@192.0.2.2:5070;transport=tcp")
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.2:5070;transport=tcp",))]
    assert south.timers == {}


def test_a_call_is_served_here_once_no_server_is_the_owner() -> None:
    south = South()
    south.call()
    south.answer(EAST)
    south.answer(EAST)
    assert south.decided == [], "a second answer of one server is not one of the other"
    south.answer(NORTH)
    assert south.decided == [CallServed("call", unowned=ALICE)]
    south.answer(NORTH, contact="sip:broker@192.0.2.2:5070")
    assert south.decided == [CallServed("call", unowned=ALICE)], "an answer after the decision changes nothing"
    assert south.timers == {}


def test_an_owner_that_is_down_keeps_no_caller_waiting() -> None:
    south = South()
    south.call()
    south.answer(EAST)
    south.wait(ANSWER_S - 0.01)
    assert south.decided == []
    south.wait(0.01)
    assert south.decided == [CallServed("call")], "north is silent"
    south.call("second")
    south.answer(EAST, 2)
    south.close(NORTH)
    assert south.decided[1:] == [CallServed("second")], "the link to north has failed"
    south.call("third")
    assert south.asked[-1] == (EAST, OwnerAsked(3, ALICE)), "north is not asked"
    south.answer(EAST, 3)
    assert south.decided[2:] == [CallServed("third")]
    south.close(EAST)
    south.call("fourth")
    assert south.decided[3:] == [CallServed("fourth")], "there is nobody to ask"


def test_l04_a_device_with_subscriptions_at_a_silent_server_calls_again_for_a_while() -> None:
    south = South()
    south.call(former="north")
    south.answer(EAST)
    south.wait(ANSWER_S)
    assert south.decided == [CallPostponed("call", "north")]
    south.close(NORTH)
    south.call("second", former="north")
    south.answer(EAST, 2)
    assert south.decided[1:] == [CallPostponed("second", "north")]
    south.close(EAST)
    south.call("third", former="north")
    assert south.decided[2:] == [CallPostponed("third", "north")], "there is nobody to ask"
    south.wait(POSTPONED_S)
    south.call("fourth", former="north")
    assert south.decided[3:] == [CallServed("fourth")]
    south.wait(OUTAGE_S)
    south.call("fifth", former="north")
    assert south.decided[4:] == [CallPostponed("fifth", "north")], "another outage"


def test_l04_a_device_calls_again_only_for_a_server_that_may_have_its_session() -> None:
    south = South()
    south.call(former="north")
    south.answer(NORTH)
    south.answer(EAST)
    assert south.decided == [CallServed("call", unowned=ALICE)], "north has nothing"
    for number, former in enumerate(("west", "south"), 2):
        south.call(former, former=former)
        south.answer(EAST, number)
        south.wait(ANSWER_S)
        assert south.decided[-1] == CallServed(former)


def test_a_question_is_repeated_on_a_new_link() -> None:
    south = South()
    south.call()
    south.answer(EAST)
    south.open(4)
    south.close(NORTH)
    assert south.decided == []
    assert south.asked[-1] == (4, OwnerAsked(1, ALICE))
    south.answer(4, contact="sip:broker@192.0.2.2")
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.2",))]


def test_the_first_questions_also_wait_for_the_first_links() -> None:
    south = South(links=(EAST,))
    south.now = LATER - 1
    south.call()
    south.answer(EAST)
    assert south.decided == []
    south.open(NORTH)
    assert south.asked[-1] == (NORTH, OwnerAsked(1, ALICE))
    south.answer(NORTH, contact="sip:broker@192.0.2.2")
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.2",))]
    late = South(links=(EAST,))
    late.call()
    late.answer(EAST)
    assert late.decided == [CallServed("call")], "north had its time"


@pytest.mark.parametrize(
    ("row", "is_owner"),
    [
        (session(subscriptions=["a"]), True),
        (session(waiting=1), True),
        (session(subscriptions=["a"], waiting=1, is_fenced=True), False),
        (session(devices=["d"], ended=["a"]), False),
        (session("sip:bob@example.org", subscriptions=["a"]), False),
    ],
)
def test_the_owner_has_subscriptions_or_notifications_that_wait(row: SessionRow, is_owner: bool) -> None:
    south = South(row)
    payload = owner_messages.encode(OwnerAsked(7, ALICE))[1:]
    south.give(ServerMessageReceived(EAST, "east", payload))
    contacts = (SOUTH,) if is_owner else ()
    assert south.asked == [(EAST, OwnerAnswered(7, contacts, takes_at=(SOUTH,), is_exact=is_owner))]


def test_l04_the_server_that_knows_the_publishes_of_a_device_is_the_owner() -> None:
    south = South(session(devices=["phone"]))
    for publishers in ((), ((ALICE, "phone"),)):
        south.rows.publishers.update(publishers)
        south.give(ServerMessageReceived(EAST, "east", owner_messages.encode(OwnerAsked(7, ALICE))[1:]))
    assert [each.contacts for _, each in south.asked if isinstance(each, OwnerAnswered)] == [(), (SOUTH,)]


def test_a_call_that_returns_is_served_here_because_its_caller_could_not_reach_the_owner() -> None:
    south = South()
    for call in ("call", "other"):
        south.call(call)
        south.answer(NORTH, len(south.decided) + 1, "sip:broker@192.0.2.2")
    south.wait(4.0)
    south.call("call")
    assert south.decided[2:] == [CallServed("call")]
    south.wait(RETURN_S)
    south.call("other")
    assert south.decided[3:] == [], "this is a new call by now"
    assert south.asked[-1] == (NORTH, OwnerAsked(3, ALICE))


def test_a_call_that_is_offered_again_has_one_question() -> None:
    south = South()
    south.call()
    south.call()
    assert len(south.asked) == 2
    south.wait(ANSWER_S)
    assert south.decided == [CallServed("call")]
    assert south.timers == {}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x93\x09\x01\x02",
        owner_messages.encode(OwnerAnswered(1, (f"sip:{'x' * 2_000}@192.0.2.2",)))[1:],
        owner_messages.encode(OwnerAnswered(1, ("sip:broker@192.0.2.2\r\nVia: x",)))[1:],
        owner_messages.encode(OwnerAnswered(1, ("nobody",)))[1:],
        owner_messages.encode(OwnerAnswered(1, (), takes_at=("nobody",)))[1:],
    ],
)
def test_a_malformed_message_closes_the_link(payload: bytes) -> None:
    south = South()
    south.call()
    south.give(ServerMessageReceived(NORTH, "north", payload))
    assert [each.link for each in south.closed] == [NORTH]
    assert south.decided == []


def test_a_server_that_has_given_a_session_up_names_the_next_owner() -> None:
    south = South(session(is_fenced=True, owner_epoch=4, next_owner="east"))
    south.give(ServerMessageReceived(NORTH, "north", owner_messages.encode(OwnerAsked(7, ALICE))[1:]))
    assert south.asked == [(NORTH, OwnerAnswered(7, (), "east", 4, (SOUTH,)))]


def test_a_server_to_which_a_session_is_on_its_way_names_itself() -> None:
    south = South()
    south.rows.awaited[f"{ALICE}/default"] = AwaitedRow(2, "east", 0, ())
    south.give(ServerMessageReceived(NORTH, "north", owner_messages.encode(OwnerAsked(7, ALICE))[1:]))
    assert south.asked == [(NORTH, OwnerAnswered(7, (), "south", 2, (SOUTH,)))]


def test_the_next_owner_is_asked_again_if_it_may_have_answered_before_the_session_came() -> None:
    south = South()
    south.call()
    south.answer(EAST)
    south.answer(NORTH, after=("east", 2))
    assert south.decided == []
    south.asked.clear()
    south.wait(LOOK_S)
    assert south.asked == [(EAST, OwnerAsked(1, ALICE))]
    south.answer(EAST, contact="sip:broker@192.0.2.1")
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.1",))]


def test_a_user_is_unowned_only_if_every_server_says_so() -> None:
    south = South(links=(EAST,))
    south.call()
    south.answer(EAST)
    assert south.decided == [CallServed("call")], "north has no link"


def test_a_next_owner_without_the_session_is_asked_once_more_only() -> None:
    south = South()
    south.call()
    south.answer(EAST)
    south.answer(NORTH, after=("east", 2))
    south.wait(LOOK_S)
    south.answer(EAST)
    assert south.decided == [CallServed("call", unowned=ALICE)]


def test_a_server_that_awaits_the_session_is_asked_until_it_has_it() -> None:
    south = South()
    south.call()
    south.answer(NORTH)
    for _ in range(3):
        south.answer(EAST, after=("east", 2))
        south.wait(LOOK_S)
    south.answer(EAST, contact="sip:broker@192.0.2.1")
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.1",))]


def test_a_call_for_a_session_that_has_left_waits_until_it_has_arrived() -> None:
    south = South(session(is_fenced=True, owner_epoch=2, next_owner="east"))
    south.rows.exports.add(f"{ALICE}/default")
    south.call()
    south.wait(LOOK_S)
    assert (south.asked, south.decided) == ([], [])
    south.rows.exports.clear()
    south.wait(LOOK_S)
    south.answer(EAST, contact="sip:broker@192.0.2.1")
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.1",))]


def test_a_call_for_a_session_that_has_left_goes_to_its_next_owner_without_a_question_if_that_can_be_reached() -> None:
    rows = [session(user, is_fenced=True, owner_epoch=2, next_owner="east") for user in (ALICE, BOB)]
    south = South(*rows)
    south.call("first", ALICE, "default")
    south.answer(EAST, contact="sip:broker@192.0.2.1", is_exact=True)
    south.asked.clear()
    south.call("second", BOB, "default")
    south.call("other session", BOB, "work")
    assert south.decided == [CallRedirected(call, ("sip:broker@192.0.2.1",)) for call in ("first", "second")]
    assert south.asked == [(link, OwnerAsked(2, BOB, "work")) for link in (EAST, NORTH)]
    south.close(EAST)
    south.call("third", BOB, "default")
    assert len(south.decided) == 2


def test_a_call_for_a_session_that_takes_too_long_is_served() -> None:
    south = South(session(is_fenced=True, owner_epoch=2, next_owner="east"))
    south.rows.exports.add(f"{ALICE}/default")
    south.call()
    for _ in range(round(ANSWER_S / LOOK_S) + 1):
        south.wait(LOOK_S)
    assert south.decided == [CallServed("call")]


def test_memory_of_questions_and_redirections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_owners, "QUESTIONS_MAX", 3)
    monkeypatch.setattr(session_owners, "REDIRECTED_MAX", 3)
    south = South()
    for number in range(5):
        south.call(f"call {number}")
    assert south.decided == [CallServed("call 3"), CallServed("call 4")]
    for number in range(1, 10):
        south.call(f"next {number}")
        south.answer(NORTH, number, "sip:broker@192.0.2.2")
    assert len(south.machine._redirected) == 3
    alone = South(links=())
    for number in range(5):
        alone.call(f"call {number}", f"sip:user{number}@example.org", former="north")
    assert len(alone.machine._postponed) == 3


# Users with several sessions -----------------------------------------------------------------------------------------

AT_EAST, AT_NORTH = "sip:broker@192.0.2.1", "sip:broker@192.0.2.2"


def test_l06_a_call_for_a_session_that_has_moved_is_not_served_where_the_users_other_session_is() -> None:
    south = South(session(subscriptions=["a"]), session(name="work", is_fenced=True, owner_epoch=2, next_owner="east"))
    south.call("one", name="default")
    assert south.decided == [CallServed("one")]
    south.call("two", name="work")
    assert south.asked == [(link, OwnerAsked(1, ALICE, "work")) for link in (EAST, NORTH)]
    south.answer(EAST, contact=AT_EAST, is_exact=True)
    assert south.decided[1:] == [CallRedirected("two", (AT_EAST,))]


def test_l06_the_server_with_the_very_session_has_precedence_over_one_with_another_of_the_user() -> None:
    south = South()
    south.call(name="work")
    south.answer(NORTH, contact=AT_NORTH)
    assert south.decided == []
    south.answer(EAST, contact=AT_EAST, is_exact=True)
    assert south.decided == [CallRedirected("call", (AT_EAST,))]


@pytest.mark.parametrize(
    ("rows", "decided"),
    [
        ((), CallRedirected("call", (AT_NORTH,))),
        ((session(subscriptions=["a"]),), CallServed("call")),
    ],
)
def test_a_session_that_nobody_has_begins_where_another_of_the_user_is(
    rows: tuple[SessionRow, ...], decided: object
) -> None:
    south = South(*rows)
    south.call(name="work")
    south.answer(NORTH, contact=AT_NORTH)
    south.answer(EAST)
    assert south.decided == [decided if not rows else CallServed("call", ALICE, "work")], "it is over where it was"
    silent = South(*rows)
    silent.call(name="work")
    silent.answer(NORTH, contact=AT_NORTH)
    silent.wait(ANSWER_S)
    assert silent.decided == [decided], "a server that is silent has no session"


def test_while_a_server_drains_a_session_that_nobody_has_begins_elsewhere() -> None:
    south = South(session(subscriptions=["a"]))
    south.rows.is_draining = True
    for call, contact in (("one", AT_NORTH), ("two", "")):
        request = len(south.decided) + 1
        south.call(call, name="work")
        south.answer(EAST, request)
        south.answer(NORTH, request, contact, takes_at=AT_NORTH)
    assert south.decided == [CallRedirected(call, (AT_NORTH,)) for call in ("one", "two")]


def test_no_session_begins_at_a_server_that_drains_because_another_is_there() -> None:
    south = South()
    south.call(name="work")
    payload = owner_messages.encode(OwnerAnswered(1, (AT_NORTH,)))[1:]
    south.give(ServerMessageReceived(NORTH, "north", payload))
    south.answer(EAST)
    assert south.decided == [CallServed("call", ALICE, "work")]


def test_a_session_without_subscriptions_is_served_where_another_of_the_user_is() -> None:
    south = South(session(subscriptions=["a"]), session(name="pub"))
    south.call(name="pub")
    assert (south.decided, south.asked) == ([CallServed("call")], [])


def test_an_answer_about_one_session_says_whether_it_is_here_and_who_has_it_next() -> None:
    south = South(session(subscriptions=["a"]), session(name="work", is_fenced=True, owner_epoch=4, next_owner="east"))
    south.rows.awaited[f"{ALICE}/play"] = AwaitedRow(6, "east", 0, ())
    for name in ("default", "work", "play", "none"):
        south.give(ServerMessageReceived(NORTH, "north", owner_messages.encode(OwnerAsked(7, ALICE, name))[1:]))
    assert [answer for _, answer in south.asked] == [
        OwnerAnswered(7, (SOUTH,), "", 0, (SOUTH,), is_exact=True),
        OwnerAnswered(7, (SOUTH,), "east", 4, (SOUTH,)),
        OwnerAnswered(7, (SOUTH,), "south", 6, (SOUTH,)),
        OwnerAnswered(7, (SOUTH,), "", 0, (SOUTH,)),
    ]


def test_a_call_waits_only_while_the_session_that_it_is_for_leaves() -> None:
    south = South(session(subscriptions=["a"]), session(name="work", is_fenced=True, owner_epoch=2, next_owner="east"))
    south.rows.exports.add(f"{ALICE}/work")
    south.call("one", name="default")
    assert south.decided == [CallServed("one")]
    south.call("two", name="work")
    assert (south.decided[1:], south.asked) == ([], [])
    south.rows.exports.clear()
    south.wait(LOOK_S)
    assert south.asked == [(link, OwnerAsked(1, ALICE, "work")) for link in (EAST, NORTH)]


def gone(epoch: int = 5) -> SessionRow:
    """Return a session that has left for another domain."""
    return session(owner_epoch=epoch, is_fenced=True, next_owner="beta/b1")


def met(*rows: SessionRow) -> South:
    """Return the server, which has met that of the other domain."""
    south = South(*rows)
    south.machine.step([FarServerMet("beta/b1", (BETA,))], south.now)
    return south


def test_l01_a_session_that_has_come_back_to_another_server_is_found_there() -> None:
    south = met(gone())
    south.call(name="default")
    assert south.decided == []
    south.answer(EAST, contact="sip:broker@192.0.2.1:5070", is_exact=True)
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.1:5070",))]


def test_l01_a_session_that_is_still_in_the_other_domain_is_found_there() -> None:
    south = met(gone())
    south.call(name="default")
    south.answer(EAST)
    south.answer(NORTH)
    assert south.decided == [CallRedirected("call", (BETA,))]


def test_l01_a_session_is_in_the_other_domain_if_no_server_here_has_a_link() -> None:
    south = met(gone())
    for link in (EAST, NORTH):
        south.close(link)
    south.call(name="default")
    assert south.decided == [CallRedirected("call", (BETA,))]


@pytest.mark.parametrize(("epoch", "is_later"), [(4, False), (6, True)])
def test_l01_the_server_from_which_a_session_left_last_sends_the_device_on(epoch: int, is_later: bool) -> None:
    """The others must not send it to each other."""
    south = met(gone())
    south.call(name="default")
    south.answer(EAST, contact="sip:broker@192.0.2.1:5070", after=("beta/b2", epoch), is_exact=True)
    south.answer(NORTH)
    assert south.decided == [CallRedirected("call", ("sip:broker@192.0.2.1:5070" if is_later else BETA,))]
