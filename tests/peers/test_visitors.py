"""Visitors from other domains: who is served, sent home, or gets the own session moved here (SPEC D-13; 0174)."""

from __future__ import annotations

from typing import Any

import pytest

from wanderbus.broker.sessions.handover_messages import UserUnowned
from wanderbus.broker.state.rows import AwaitedRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import (
    FIRST_FAR_LINK,
    AskServers,
    FarDomain,
    FarDomains,
    FarServerMet,
    ServersFound,
    VisitorsChoice,
)
from wanderbus.peers.handover import visitors
from wanderbus.peers.handover.messages import Message, VisitorAnswered, VisitorCame, decode, encode
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.handover.visitors import HELD_MAX, HELD_S, STAYS_S, TIMER
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    DisconnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.owner_messages import (
    CallPostponed,
    CallRedirected,
    CallRefused,
    CallServed,
    OwnerWanted,
    VisitorCalled,
    VisitorStays,
)
from wanderbus.peers.session_owners import POSTPONED_S, SessionOwners
from wanderbus.records import Subscribed
from wanderbus.sip.proxy.visit_proofs import VisitProof
from wanderbus.subscription import Subscription

CAROL, DAVE = "sip:carol@alpha", "sip:dave@gamma"
WANTED = Subscription("b1-1-1", CAROL, "default", "T", "x > 1")
PROOF = VisitProof(5, b"m" * 32)
SERVERS = ("a1", "a2")
COMING = VisitorAnswered(1, is_coming=True)


def none(request: int = 1, reason: str = "") -> VisitorAnswered:
    return VisitorAnswered(request, False, reason)


class Host:
    """The server b1 of the domain beta, which users of alpha and gamma call."""

    def __init__(self, visitors: VisitorsChoice) -> None:
        self.state = BrokerState("b1", 100)
        there = FarDomain(takes_sessions=True, visitors=visitors)
        domains = FarDomains("beta", {"alpha": there, "gamma": there}, "b1")
        self.handovers = SessionHandovers(
            ["b2"], ["b2"], self.state, "beta", domains=domains, service="sip:broker@beta"
        )
        self.domains = domains
        self.now = 0.0
        self.calls = 0

    def give(self, *inputs: Input | Output) -> list[Any]:
        return list(self.handovers.step(inputs, self.now))

    def call(self, user: str = CAROL, session: str = "default") -> list[Any]:
        """Let a user call; the calls are c1, c2 and so on."""
        self.calls += 1
        return self.give(VisitorCalled(f"c{self.calls}", user, session, True, PROOF))

    def meet(self, *servers: str, version: int = 1, domain: str = "alpha") -> list[Any]:
        """Find the servers of a domain, and open links to them."""
        found = self.give(ServersFound(domain, "", servers or SERVERS, "a1"))
        for number, server in enumerate(servers or SERVERS):
            name = f"{domain}/{server}"
            found += self.give(FarServerMet(name, (), version))
            found += self.give(ServerLinkOpened(FIRST_FAR_LINK + number, name, is_ours=True))
        return found

    def say(self, message: Message, server: str = "alpha/a1", link: int = FIRST_FAR_LINK) -> list[Any]:
        return self.give(ServerMessageReceived(link, server, encode(message)[1:]))

    def later(self, seconds: float) -> list[Any]:
        self.now += seconds
        return self.give(TimerFired(TIMER))

    def own(self) -> None:
        """Let the session be here."""
        self.state.apply(self.state.offset, Subscribed(at_us=1, number=1, subscription=WANTED))


def sent(outputs: list[Any]) -> list[Message]:
    return [decode(each.payload[1:]) for each in outputs if isinstance(each, SendOnServerLink)]


def decisions(outputs: list[Any]) -> list[Any]:
    return [each for each in outputs if isinstance(each, CallServed | CallRedirected | CallRefused)]


@pytest.mark.parametrize("user", [CAROL, "sip:erin@delta", "sip:bob@beta"])
def test_d13_a_visitor_is_served_at_once_unless_something_else_is_chosen(user: str) -> None:
    host = Host("own" if user == CAROL else "move")
    assert host.call(user) == [CallServed("c1")]


def test_d13_a_visitor_whose_session_is_here_is_served_at_once() -> None:
    choices: tuple[VisitorsChoice, ...] = ("home", "move")
    for choice in choices:
        host = Host(choice)
        host.own()
        assert host.call() == [CallServed("c1")]


def test_d13_the_servers_of_the_own_domain_are_asked_with_the_proof() -> None:
    host = Host("move")
    assert [type(each) for each in host.call()] == [AskServers, SetTimer]
    outputs = host.meet()
    asked = VisitorCame(1, CAROL, "default", "c1", True, True, 5, b"m" * 32)
    assert sent(outputs) == [asked, asked]
    assert [each for each in outputs if isinstance(each, ConnectServer)] == [
        ConnectServer("alpha/a1"),
        ConnectServer("alpha/a2"),
    ]


def test_d13_a_session_that_comes_is_served_then() -> None:
    host = Host("move")
    host.call()
    host.meet()
    assert host.say(COMING) == []
    assert decisions(host.say(none(), "alpha/a2")) == []
    assert decisions(host.later(HELD_S / 2)) == []
    host.own()
    outputs = host.later(HELD_S / 4)
    assert decisions(outputs) == [CallServed("c1")]
    assert DisconnectServer("alpha/a1") in outputs, "nobody is asked any more"


@pytest.mark.parametrize(
    ("choice", "decided"),
    [("move", CallServed("c1")), ("home", CallRedirected("c1", ("sip:broker@alpha",)))],
)
def test_d13_a_visitor_without_a_session_at_home_is_served_as_chosen(choice: Any, decided: Any) -> None:
    host = Host(choice)
    host.call()
    assert [each.wants_session for each in sent(host.meet()) if isinstance(each, VisitorCame)] == [choice == "move"] * 2
    assert decisions(host.say(none())) == []
    assert decisions(host.say(none(), "alpha/a2")) == [decided]


def test_d13_a_visitor_is_sent_to_a_domain_that_does_not_answer() -> None:
    host = Host("home")
    host.call()
    host.meet()
    assert decisions(host.later(HELD_S)) == [CallRedirected("c1", ("sip:broker@alpha",))]


def test_d13_a_visitor_is_refused_for_a_while_if_the_own_domain_does_not_answer() -> None:
    host = Host("move")
    away = "alpha, the domain of this user, cannot be reached"
    host.call()
    assert decisions(host.later(HELD_S)) == [CallRefused("c1", away)]
    host.call()
    assert decisions(host.later(HELD_S)) == [CallRefused("c2", away)]
    host.now += POSTPONED_S
    host.call()
    assert decisions(host.later(HELD_S)) == [CallServed("c3")]


def test_d13_a_visitor_is_told_to_call_again_while_the_session_is_on_its_way() -> None:
    host = Host("move")
    host.call()
    host.meet()
    host.say(COMING)
    assert decisions(host.later(HELD_S)) == [CallRefused("c1", "the session is on its way here from alpha; call again")]
    host.state.awaited.put(session_key(CAROL, "default"), AwaitedRow(9, "alpha/a1", 0, (WANTED,)))
    host.call()
    assert decisions(host.later(HELD_S)) == [CallServed("c2")], "it is refused when it attaches"


def test_d13_nobody_is_asked_for_a_while_for_a_session_that_has_not_come() -> None:
    host = Host("move")
    host.call()
    host.meet()
    host.say(COMING)
    host.later(HELD_S)
    assert host.say(none(reason="patterns stay")) == [VisitorStays(CAROL, "default", "patterns stay")]
    assert host.call() == [CallServed("c2")]
    host.now += STAYS_S
    assert [type(each) for each in host.call()][:1] == [AskServers]


def test_d13_the_reason_of_the_own_domain_is_reported() -> None:
    host = Host("move")
    host.call()
    host.meet("a1")
    outputs = host.say(none(reason="alpha gives no sessions to beta"))
    assert outputs[:2] == [VisitorStays(CAROL, "default", "alpha gives no sessions to beta"), CallServed("c1")]


def test_d13_the_question_is_repeated_on_another_link() -> None:
    host = Host("move")
    host.call()
    host.meet("a1")
    assert sent(host.give(ServerLinkClosed(FIRST_FAR_LINK, "alpha/a1", "lost"))) == []
    again = host.give(FarServerMet("alpha/a1", (), 1), ServerLinkOpened(FIRST_FAR_LINK + 5, "alpha/a1", is_ours=True))
    assert [type(each) for each in sent(again)] == [VisitorCame]


def test_d13_a_server_of_an_earlier_version_is_not_asked() -> None:
    host = Host("move")
    host.call()
    outputs = host.meet("a1", version=0)
    assert (sent(outputs), decisions(outputs)) == ([], [CallServed("c1")])


def test_d13_answers_that_nobody_has_asked_for_decide_nothing() -> None:
    host = Host("move")
    host.call()
    host.meet("a1")
    for server, request in (("alpha/a1", 7), ("alpha/a9", 1), ("gamma/g1", 1)):
        for is_coming in (False, True):
            assert host.say(VisitorAnswered(request, is_coming), server) == []
    assert decisions(host.say(none())) == [CallServed("c1")]


def test_d13_a_server_that_was_not_asked_does_not_say_that_the_session_comes() -> None:
    host = Host("move")
    host.call()
    host.meet("a1")
    for server in ("alpha/a9", "gamma/g1"):
        host.say(COMING, server)
    assert decisions(host.later(HELD_S)) == [CallRefused("c1", "alpha, the domain of this user, cannot be reached")]


def test_d13_the_oldest_of_too_many_late_sessions_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "REMEMBERED_MAX", 1)
    host = Host("move")
    host.call()
    host.call("sip:erin@alpha")
    assert len(decisions(host.later(HELD_S))) == 2
    host.now += POSTPONED_S
    host.call()
    assert [type(each) for each in decisions(host.later(HELD_S))] == [CallRefused], "its time begins again"


def test_d13_a_domain_has_no_more_waiting_calls_than_its_bound() -> None:
    host = Host("move")
    for _ in range(HELD_MAX):
        assert decisions(host.call()) == []
    refused = CallRefused(f"c{HELD_MAX + 1}", f"{HELD_MAX} calls of users of alpha wait already")
    assert decisions(host.call()) == [refused]
    assert decisions(host.call(DAVE)) == [], "another domain has its own"


def test_d13_the_choice_of_a_changed_file_counts_for_calls_that_wait() -> None:
    host = Host("move")
    host.call()
    host.meet("a1")
    host.domains.use({"alpha": FarDomain(visitors="home")})
    assert decisions(host.say(none())) == [CallRedirected("c1", ("sip:broker@alpha",))]


def left(host: Host, owner: str = "alpha/a1") -> None:
    """Let the session have been at the host, and be in its own domain again."""
    row = host.state.ensure_session(CAROL, "default")
    row.owner_epoch, row.is_fenced, row.next_owner = 9, True, owner


@pytest.mark.parametrize("answer", [none(reason="patterns stay"), None])
def test_d13_a_visitor_whose_session_has_gone_home_from_here_is_sent_there_if_it_stays(
    answer: VisitorAnswered | None,
) -> None:
    host = Host("move")
    left(host)
    host.call()
    host.meet("a1")
    if answer is None:
        host.later(HELD_S)
        host.now += POSTPONED_S
        host.call()
        outputs = host.later(HELD_S)
    else:
        outputs = host.say(answer)
    assert decisions(outputs) == [CallRedirected(f"c{host.calls}", ("sip:broker@alpha",))]
    assert UserUnowned(CAROL, "default") not in outputs


def test_d13_a_visitor_whose_session_is_over_at_home_begins_again_here() -> None:
    host = Host("move")
    left(host)
    host.call()
    host.meet("a1")
    outputs = host.say(none())
    assert outputs[:2] == [UserUnowned(CAROL, "default"), CallServed("c1")]


def test_a_server_of_the_own_domain_asks_for_no_visitor() -> None:
    host = Host("move")
    host.give(ServerLinkOpened(1, "b2", is_ours=False))
    outputs = host.say(VisitorCame(1, CAROL, "default", "c1"), "b2", 1)
    assert outputs == [CloseServerLink(1, "b2: a server of this domain may not ask this")]


@pytest.mark.parametrize(
    ("choice", "owner", "is_fetched"),
    [("move", "alpha/a1", True), ("own", "alpha/a1", False), ("home", "alpha/a1", False), ("move", "gamma/g1", False)],
)
def test_d13_a_session_that_has_gone_home_from_here_is_fetched_again(choice: Any, owner: str, is_fetched: bool) -> None:
    host = Host(choice)
    left(host, owner)
    owners = SessionOwners((), host.state, (), fetches=host.domains.fetches)
    decided = owners.step([OwnerWanted("c1", CAROL, "default")], 0.0)
    assert decided == [CallServed("c1") if is_fetched else CallPostponed("c1", owner)]
    following = owners.step([OwnerWanted("c2", CAROL, "default", follows=True)], 0.0)
    assert following == [CallPostponed("c2", owner)], "a device that follows does not bring the session back"
