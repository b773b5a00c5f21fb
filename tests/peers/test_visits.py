"""Servers of other domains that ask for the sessions of users who have called them: who gets one (SPEC D-13; 0174)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wanderbus.broker.sessions.handover_messages import SessionMoveEnded, SessionMoveRefused, UserUnowned
from wanderbus.broker.state.rows import ExportRow, SessionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import ClockRead, Input, Output
from wanderbus.peers.far_servers import FIRST_FAR_LINK, FarDomain, FarDomains
from wanderbus.peers.handover import visits
from wanderbus.peers.handover.messages import Message, Part, VisitorAnswered, VisitorCame, decode, encode
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.handover.visits import PROOF_S
from wanderbus.peers.messages import SendOnServerLink, ServerLinkOpened, ServerMessageReceived
from wanderbus.records import SessionFenced, Subscribed
from wanderbus.sip.proxy.visit_proofs import visit_mac
from wanderbus.subscription import Subscription

CAROL = "sip:carol@alpha"
KEY = b"k" * 32
NOW_S = 1_000_000
PEER = "beta/b1"
COMING = VisitorAnswered(1, is_coming=True)
UNPROVED = VisitorAnswered(
    1, False, "the proxy of alpha has not proved that this user called there within the last minute"
)


class Home:
    """The server a1 of alpha, with a session of carol's; beta asks for it."""

    def __init__(self, *, gives: bool = True, key: bytes = KEY, has_session: bool = True) -> None:
        self.state = BrokerState("a1", 100)
        there = FarDomain(gives_sessions=gives)
        domains = FarDomains("alpha", {"beta": there, "gamma": there}, "a1")
        self.handovers = SessionHandovers((), (), self.state, "alpha", domains=domains, visit_key=key)
        if has_session:
            self.subscribe("default")
        self.at(NOW_S)
        self.give(ServerLinkOpened(FIRST_FAR_LINK, PEER, is_ours=False))

    def subscribe(self, session: str) -> None:
        wanted = Subscription(f"a1-1-{self.state.offset + 1}", CAROL, session, "T", "x > 1")
        record = Subscribed(at_us=1, number=self.state.offset + 1, subscription=wanted)
        self.state.apply(self.state.offset, record)

    def at(self, second: int) -> None:
        self.give(ClockRead(second * 1_000_000))

    def give(self, *inputs: Input | Output) -> list[Any]:
        return list(self.handovers.step(inputs, 0.0))

    def ask(self, asked: VisitorCame) -> list[Any]:
        return self.give(ServerMessageReceived(FIRST_FAR_LINK, PEER, encode(asked)[1:]))

    def answer(self, asked: VisitorCame) -> VisitorAnswered:
        """Return the answer, if nothing of the session is sent with it."""
        (answer,) = sent(self.ask(asked))
        assert isinstance(answer, VisitorAnswered)
        return answer


def sent(outputs: list[Any]) -> list[Message]:
    return [decode(each.payload[1:]) for each in outputs if isinstance(each, SendOnServerLink)]


def question(
    *,
    user: str = CAROL,
    session: str = "default",
    call: str = "c1",
    at_s: int = NOW_S,
    domain: str = "beta",
    key: bytes = KEY,
    is_certain: bool = False,
) -> VisitorCame:
    """Return a question with a proof."""
    mac = visit_mac(key, user, domain, call, session, at_s)
    return VisitorCame(1, user, session, call, True, is_certain, at_s, mac)


def test_d13_the_session_of_a_user_who_has_called_moves() -> None:
    home = Home()
    answer, offer = sent(home.ask(question()))
    assert answer == COMING
    assert isinstance(offer, Part)
    assert (offer.what, offer.move.key) == ("offer", (CAROL, "default"))


LIES = {
    "no proof": msgspec.structs.replace(question(), mac=b""),
    "a short proof": msgspec.structs.replace(question(), mac=question().mac[:16]),
    "the proof for another user": msgspec.structs.replace(question(user="sip:dave@alpha"), user=CAROL),
    "the proof for another session": msgspec.structs.replace(question(session="other"), session="default"),
    "the proof for another call": msgspec.structs.replace(question(call="c2"), call="c1"),
    "the proof for another domain": question(domain="gamma"),
    "the proof for another time": msgspec.structs.replace(question(at_s=NOW_S - 1), at_s=NOW_S),
    "a late proof": question(at_s=NOW_S - PROOF_S - 1),
    "a proof of the future": question(at_s=NOW_S + PROOF_S + 1),
    "a proof with another key": question(key=b"K" * 32),
    "a proof with no key": question(key=b""),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("has_session", [True, False])
def test_d13_a_domain_gets_no_session_without_a_proof_and_learns_nothing_of_it(lie: str, has_session: bool) -> None:
    assert Home(has_session=has_session).answer(LIES[lie]) == UNPROVED


def test_d13_a_server_that_shares_no_key_with_its_proxies_gives_no_session() -> None:
    assert Home(key=b"").answer(question(key=b"")) == UNPROVED


def test_d13_a_server_that_does_not_know_the_time_gives_no_session() -> None:
    home = Home()
    home.at(0)
    assert home.answer(question()) == UNPROVED


@pytest.mark.parametrize("has_session", [True, False])
def test_d13_a_domain_gets_no_session_unless_the_operator_gives_it(has_session: bool) -> None:
    home = Home(gives=False, has_session=has_session)
    assert home.answer(question()).reason == "alpha gives no sessions to beta; see federation.toml"


def test_d13_a_proof_counts_once() -> None:
    home = Home()
    home.ask(question())
    home.give(SessionMoveRefused(CAROL, "default", "patterns stay"))
    assert home.answer(question()) == UNPROVED
    home.at(NOW_S + PROOF_S)
    assert home.answer(question()) == UNPROVED
    assert sent(home.ask(question(call="c2", at_s=NOW_S + PROOF_S)))[0] == COMING


def test_d13_a_repeated_question_does_not_begin_another_move() -> None:
    home = Home()
    home.ask(question())
    assert home.answer(question()) == COMING
    assert home.answer(question(call="c2")).reason.endswith("is on its way already")


def test_d13_a_question_that_is_repeated_after_the_move_has_the_same_answer() -> None:
    home = Home()
    home.ask(question())
    fenced = SessionFenced(at_us=2, user=CAROL, session="default", owner_epoch=2, target=PEER)
    home.state.apply(home.state.offset, fenced)
    home.handovers._visits.ended(SessionMoveEnded(CAROL, "default", PEER))
    assert home.answer(question()) == COMING
    assert home.answer(question(call="c2", key=b"x" * 32)) == UNPROVED


def test_d13_a_server_that_has_asked_learns_that_the_session_stays() -> None:
    home = Home()
    home.ask(question())
    outputs = home.give(SessionMoveRefused(CAROL, "default", "patterns stay"))
    assert VisitorAnswered(1, False, "patterns stay") in sent(outputs)
    assert [each.reason for each in outputs if isinstance(each, SessionMoveEnded)] == ["patterns stay"]


@pytest.mark.parametrize("session", ["default", "other", ""])
def test_d13_a_server_without_the_session_gives_no_reason(session: str) -> None:
    assert Home(has_session=False).answer(question(session=session)) == VisitorAnswered(1, False)


def test_d13_a_visitor_who_is_sent_home_moves_nothing() -> None:
    home = Home()
    assert home.answer(msgspec.structs.replace(question(), wants_session=False)) == VisitorAnswered(1, False)


def test_d13_a_domain_has_no_more_moving_sessions_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "MOVES_MAX", 1)
    home = Home()
    home.subscribe("other")
    home.ask(question())
    full = "1 sessions are on their way to beta already; try again later"
    assert home.answer(question(session="other", call="c2")).reason == full


def test_d13_a_domain_has_no_more_proofs_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visits, "PROOFS_MAX", 1)
    home = Home(has_session=False)
    assert home.answer(question()) == VisitorAnswered(1, False)
    assert home.answer(question(call="c2")) == UNPROVED
    later = NOW_S + 2 * PROOF_S + 1
    home.at(later)
    assert home.answer(question(call="c3", at_s=later)) == VisitorAnswered(1, False)


def left_for(owner: str) -> Home:
    """Return a server whose session has left."""
    home = Home(has_session=False)
    row = SessionRow(CAROL, "default", 1, owner_epoch=9, is_fenced=True, next_owner=owner)
    home.state.sessions.put(row.key, row)
    return home


@pytest.mark.parametrize(
    ("owner", "is_certain", "forgets"),
    [("beta/b2", True, True), ("beta/b2", False, False), ("gamma/g1", True, False), ("a2", True, False)],
)
def test_d13_a_session_that_is_over_in_the_other_domain_can_begin_again(
    owner: str, is_certain: bool, forgets: bool
) -> None:
    outputs = left_for(owner).ask(question(is_certain=is_certain))
    assert (UserUnowned(CAROL, "default") in outputs) is forgets
    assert VisitorAnswered(1, False) in sent(outputs)


def test_d13_a_session_that_the_other_domain_has_not_taken_yet_is_kept() -> None:
    home = left_for("beta/b2")
    home.state.exports.put(session_key(CAROL, "default"), ExportRow(b"", "beta/b2"))
    assert UserUnowned(CAROL, "default") not in home.ask(question(is_certain=True))
