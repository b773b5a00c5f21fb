"""Sessions that come from other domains and go there: who is trusted, and what a neighbour may say (SPEC L-01)."""

from __future__ import annotations

import msgspec
import pytest

from wanderbus.broker.sessions.handover_messages import (
    AwaitedEffective,
    AwaitSession,
    FenceSession,
    ForgetAwaited,
    Head,
    HeadFound,
    HeadWanted,
    ImportSession,
    MoveSession,
    PastQuestion,
    ResumePublishes,
    SessionMoveEnded,
    SessionMoveRefused,
    SessionQuestion,
)
from wanderbus.broker.state.exported_session import (
    ExportedPublisher,
    ExportedSession,
    encode_export,
    encode_publishers,
)
from wanderbus.broker.state.rows import (
    AwaitedRow,
    DeviceRow,
    EventRow,
    PublisherRow,
    SessionRow,
    SubscriptionRow,
    session_key,
)
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.event import Event, EventId
from wanderbus.machine import Input, Output, TimerFired
from wanderbus.peers.far_servers import FIRST_FAR_LINK, AskServers, FarDomain, FarDomains, ServersFound
from wanderbus.peers.handover import arriving_sessions
from wanderbus.peers.handover.messages import (
    HeadAnswered,
    HeadAsked,
    Message,
    Move,
    MoveAwaited,
    MoveReady,
    MoveRefused,
    MoveTaken,
    MoveWithdrawn,
    PastAsked,
    WantedOf,
    decode,
    encode,
    encode_offer,
    parts_of,
)
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    DisconnectServer,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.protocol import encode_event
from wanderbus.records import Subscribed
from wanderbus.subscription import Subscription

USER = "sip:u@alpha"
MOVE = Move(USER, "default", 1_000)
WANTED = Subscription("a1-1-1", USER, "default", "T", "x > 1")
LINK = FIRST_FAR_LINK


class Server:
    """A server of a domain with the foreign domain ``other`` and a third one, gamma; ``beside`` it are further ones."""

    def __init__(
        self, own: str, other: str, *, trusts: bool = True, beside: tuple[str, ...] = (), serves: bool = True
    ) -> None:
        types = frozenset({"T"})
        self.state = BrokerState(f"{own[0]}1", 100)
        known = FarDomain(types, types, gives_sessions=trusts, takes_sessions=trusts)
        domains = FarDomains(own, {other: known, "gamma": FarDomain(types, frozenset())}, f"{own[0]}1")
        self.handovers = SessionHandovers(beside, beside, self.state, own, domains=domains, serves=serves)
        self.peer = f"{other}/{other[0]}1"

    def give(self, *inputs: Input | Output) -> list[Input | Output]:
        return list(self.handovers.step(inputs, 0.0))

    def open(self, link: int = LINK) -> list[Input | Output]:
        return self.give(ServerLinkOpened(link, self.peer, is_ours=False))

    def say(self, *messages: Message, link: int = LINK) -> list[Input | Output]:
        return self.give(*(ServerMessageReceived(link, self.peer, encode(each)[1:]) for each in messages))

    def subscribed(self) -> None:
        record = Subscribed(at_us=1, number=1, subscription=WANTED)
        self.state.apply(self.state.offset, record)


def answers(outputs: list[Input | Output]) -> list[Message]:
    return [decode(each.payload[1:]) for each in outputs if isinstance(each, SendOnServerLink)]


def closed(outputs: list[Input | Output]) -> str:
    (found,) = [each for each in outputs if isinstance(each, CloseServerLink)]
    return found.reason


def reason(outputs: list[Input | Output]) -> str:
    (found,) = [each for each in outputs if isinstance(each, SessionMoveEnded)]
    return found.reason


def offer(move: Move = MOVE, *wanted: Subscription) -> list[Message]:
    return [*parts_of(move, "offer", encode_offer(wanted or (WANTED,)))]


def export(
    *, event: str = "alpha/a1", source: str = "alpha/a1", published: PublisherRow | None = None
) -> list[Message]:
    exported = ExportedSession(
        session=SessionRow(
            USER, "default", 1, owner_epoch=MOVE.owner_epoch, subscriptions=[WANTED.id], devices=["phone"]
        ),
        subscriptions=(SubscriptionRow(WANTED, 1),),
        ended=(),
        devices=(DeviceRow(USER, "phone", "default", 1),),
        publishers=() if published is None else (ExportedPublisher("phone", outbox=False, row=published),),
        events=(EventRow(EventId(event, 1, 5), 1, encode_event(Event("T", {"x": 5}))),),
        blocks=(),
        source=source,
    )
    return [*parts_of(MOVE, "export", encode_export(exported))]


def awaiting(server: Server) -> None:
    server.state.awaited.put(session_key(*MOVE.key), AwaitedRow(MOVE.owner_epoch, server.peer, 0, (WANTED,)))


# The source ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["beta", "beta/b1"])
def test_l01_a_domain_that_the_operator_does_not_trust_gets_no_session(target: str) -> None:
    server = Server("alpha", "beta", trusts=False)
    server.subscribed()
    assert reason(server.give(MoveSession(USER, "default", target))).startswith("alpha gives no sessions to beta")


def test_l01_an_unknown_domain_is_no_target() -> None:
    server = Server("alpha", "beta")
    server.subscribed()
    refused = reason(server.give(MoveSession(USER, "default", "delta/d1")))
    assert refused == "'delta/d1' is no foreign domain of alpha; those are beta, gamma"


def test_l01_a_session_that_has_left_for_another_domain_says_where_it_is() -> None:
    server = Server("alpha", "beta")
    server.subscribed()
    session = server.state.sessions[session_key(USER, "default")]
    session.is_fenced, session.next_owner = True, "beta/b1"
    refused = reason(server.give(MoveSession(USER, "default", "beta")))
    assert refused == f"the session 'default' of {USER} has moved to beta/b1"


def started(server: Server, target: str = "beta") -> list[Input | Output]:
    server.subscribed()
    outputs = server.give(MoveSession(USER, "default", target))
    if target == "beta":
        assert AskServers("beta", USER) in outputs
        outputs = server.give(ServersFound("beta", USER, ("b1", "b2"), "b1"))
    assert ConnectServer("beta/b1") in outputs
    return server.open()


def heads_of(outputs: list[Input | Output]) -> list[HeadAsked]:
    return [each for each in answers(outputs) if isinstance(each, HeadAsked)]


def test_l05_the_source_asks_the_servers_of_the_target_then_its_own_and_then_fences() -> None:
    server = Server("alpha", "beta")
    (part,) = answers(started(server))
    move = part.move  # type: ignore[union-attr]
    wanted = WantedOf("alpha", (NumberedFilter(0, "T", "x > 1"),))
    assert AskServers("beta") in server.say(MoveReady(move, 2, (wanted,)))
    (asked,) = heads_of(server.give(ServersFound("beta", "", ("b1",), "b1")))
    assert (asked.wanted_by, asked.wanted) == ("beta", ())
    (own,) = server.say(HeadAnswered(asked.request, Head(EventId("b1", 5, 40))))
    assert own == HeadWanted("a1", asked.request + 1, "beta", wanted.filters, user=move.user, pauses=move.session)


def asked_here(server: Server) -> HeadWanted:
    """The question to the own broker of a session that is about to leave."""
    server.give(ServerLinkOpened(LINK - 1, "a2", is_ours=False))
    (part,) = answers(started(server))
    server.say(MoveReady(part.move, 2))  # type: ignore[union-attr]
    (asked,) = heads_of(server.give(ServersFound("beta", "", ("b1",), "b1")))
    (own,) = server.say(HeadAnswered(asked.request, Head(EventId("b1", 5, 40))))
    assert isinstance(own, HeadWanted)
    return own


def test_l05_other_servers_here_are_asked_once_they_have_answered_all_that_the_session_has_published() -> None:
    server = Server("alpha", "beta", beside=("a2",))
    own = asked_here(server)
    server.give(ServerLinkClosed(LINK - 1, "a2", "test"))
    assert heads_of(server.give(ServerLinkOpened(LINK - 2, "a2", is_ours=False))) == []
    (asked,) = heads_of(server.give(HeadFound("a1", own.request, Head(EventId("a1", 5, 7)))))
    assert (asked.wanted_by, asked.user) == ("beta", USER)
    server.give(ServerLinkClosed(LINK - 2, "a2", "test"))
    assert heads_of(server.give(ServerLinkOpened(LINK - 3, "a2", is_ours=False))) == [asked]
    head = Head(EventId("a2", 5, 9), answers=encode_publishers({"a": PublisherRow(1)}))
    payload = encode(HeadAnswered(asked.request, head))[1:]
    outputs = server.give(ServerMessageReceived(LINK - 3, "a2", payload))
    assert [each.heads for each in outputs if isinstance(each, FenceSession)] == [(head,)]
    assert heads_of(outputs) == []


def test_a_server_here_that_says_more_than_its_answers_is_refused() -> None:
    server = Server("alpha", "beta", beside=("a2",))
    own = asked_here(server)
    (asked,) = heads_of(server.give(HeadFound("a1", own.request, Head(EventId("a1", 5, 7)))))
    head = Head(EventId("a2", 5, 9), answers=encode_publishers({"a": PublisherRow(1, number=5)}))
    payload = encode(HeadAnswered(asked.request, head))[1:]
    assert "answers to publishes" in closed(server.give(ServerMessageReceived(LINK - 1, "a2", payload)))


def test_l05_the_next_domain_has_to_want_here_what_is_sent_to_it_alone() -> None:
    """The next domain may name more; it cannot get that, and the session would wait for it in vain."""
    server = Server("alpha", "beta")
    (part,) = answers(started(server))
    filters = (NumberedFilter(0, "T", "x > 1"), NumberedFilter(1, "U", "x > 1"))
    server.say(MoveReady(part.move, 2, (WantedOf("alpha", filters),)))  # type: ignore[union-attr]
    (asked,) = heads_of(server.give(ServersFound("beta", "", ("b1",), "b1")))
    (own,) = server.say(HeadAnswered(asked.request, Head(EventId("b1", 5, 40))))
    assert isinstance(own, HeadWanted)
    assert own.wanted == filters[:1]


def test_l05_a_third_domain_is_asked_if_its_events_come_here_and_there() -> None:
    """Both others answer before the servers here are asked."""
    server = Server("alpha", "beta")
    (part,) = answers(started(server, "beta/b1"))
    move = part.move  # type: ignore[union-attr]
    filters = (NumberedFilter(0, "T", "x > 1"),)
    outputs = server.say(MoveReady(move, 2, (WantedOf("gamma", filters), WantedOf("alpha", filters))))
    assert [each for each in outputs if isinstance(each, AskServers)] == [AskServers("beta"), AskServers("gamma")]
    (asked,) = heads_of(server.give(ServersFound("beta", "", ("b1",), "b1")))
    outputs = server.give(ServersFound("gamma", "", ("g1",), "g1"))
    assert ConnectServer("gamma/g1") in outputs
    assert not any(
        isinstance(each, HeadWanted) for each in server.say(HeadAnswered(asked.request, Head(EventId("b1", 5, 40))))
    )
    (question,) = heads_of(server.give(ServerLinkOpened(LINK + 1, "gamma/g1", is_ours=True)))
    assert question == HeadAsked(asked.request, None, "beta", filters)
    answer = ServerMessageReceived(
        LINK + 1, "gamma/g1", encode(HeadAnswered(asked.request, Head(EventId("g1", 5, 9))))[1:]
    )
    assert any(isinstance(each, HeadWanted) for each in server.give(answer))


def test_a_move_that_takes_too_long_names_who_did_not_answer() -> None:
    server = Server("alpha", "beta")
    (part,) = answers(started(server))
    move = part.move  # type: ignore[union-attr]
    server.say(MoveReady(move, 2, (WantedOf("gamma", (NumberedFilter(0, "T", "x > 1"),)),)))
    server.give(ServersFound("beta", "", ("b1",), "b1"))
    outputs = server.handovers.step([TimerFired(move.key)], 40.0)
    assert reason(list(outputs)) == "beta/b1 and gamma did not answer within 30 s"
    assert DisconnectServer("beta/b1") in outputs


# The target ----------------------------------------------------------------------------------------------------------


def test_l01_a_domain_that_is_not_trusted_gives_no_session() -> None:
    server = Server("beta", "alpha", trusts=False)
    server.open()
    (refused,) = answers(server.say(*offer()))
    assert isinstance(refused, MoveRefused)
    assert refused.reason.startswith("beta takes no sessions of alpha")


def test_l01_a_server_that_serves_no_devices_takes_no_session_of_another_domain() -> None:
    server = Server("beta", "alpha", serves=False)
    server.open()
    (refused,) = answers(server.say(*offer()))
    assert isinstance(refused, MoveRefused)
    assert refused.reason == "b1 serves no devices"


def test_l05_the_target_says_what_its_domain_wants_for_the_session() -> None:
    server = Server("beta", "alpha")
    server.open()
    outputs = server.say(*offer())
    assert any(isinstance(each, AwaitSession) for each in outputs)
    awaiting(server)
    (ready,) = answers(server.give(AwaitedEffective(*MOVE.key, MOVE.owner_epoch)))
    filters = (NumberedFilter(0, "T", "x > 1"),)
    assert ready == MoveReady(MOVE, 2, (WantedOf("alpha", filters), WantedOf("gamma", filters)))


def test_a_session_that_is_awaited_keeps_a_link_to_its_source_and_asks_what_has_become_of_it() -> None:
    server = Server("beta", "alpha")
    awaiting(server)
    assert ConnectServer("alpha/a1") in server.handovers.start()
    assert answers(server.open()) == [MoveAwaited(MOVE)]
    assert ForgetAwaited(*MOVE.key) in server.say(MoveWithdrawn(MOVE))


@pytest.mark.parametrize("user", ["sip:a1@servers.beta", "sip:alpha@domains.beta"])
def test_a_session_of_a_reserved_user_is_refused(user: str) -> None:
    server = Server("beta", "alpha")
    server.open()
    move = Move(user, "default", 5)
    (refused,) = answers(server.say(*offer(move, msgspec.structs.replace(WANTED, owner=user))))
    assert isinstance(refused, MoveRefused)
    assert "reserved" in refused.reason


def test_an_offer_with_the_subscription_of_another_user_closes_the_link() -> None:
    server = Server("beta", "alpha")
    server.open()
    other = msgspec.structs.replace(WANTED, owner="sip:bob@beta")
    assert "subscription of another session" in closed(server.say(*offer(MOVE, other)))


def test_an_offer_with_a_subscription_that_is_known_here_closes_the_link() -> None:
    server = Server("beta", "alpha")
    record = Subscribed(at_us=1, number=1, subscription=msgspec.structs.replace(WANTED, owner="sip:bob@beta"))
    server.state.apply(0, record)
    server.open()
    assert "subscription of another session" in closed(server.say(*offer()))


def test_no_more_sessions_of_one_domain_are_awaited_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_sessions, "FAR_MOVES_MAX", 2)
    server = Server("beta", "alpha")
    for number in range(2):
        row = AwaitedRow(1, f"alpha/a{number}", 0, ())
        server.state.awaited.put(session_key(f"sip:u{number}@alpha", "default"), row)
    server.open()
    (refused, _) = [*answers(server.say(*offer())), None]
    assert isinstance(refused, MoveRefused)
    assert refused.reason == "2 sessions of alpha are on their way already; try again later"


def test_an_export_of_another_domain_is_no_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_sessions, "FAR_BYTES_MAX", 100)
    server = Server("beta", "alpha")
    awaiting(server)
    server.open()
    assert closed(server.say(*export())) == "alpha/a1: a session has more than 100 bytes"


@pytest.mark.parametrize("event", ["b1", "gamma/g1", "beta/b1"])
def test_an_event_that_waits_has_no_id_of_an_event_here(event: str) -> None:
    """Sessions share waiting events by their ids."""
    server = Server("beta", "alpha")
    awaiting(server)
    server.open()
    assert closed(server.say(*export(event=event))) == "alpha/a1: an event has no id of alpha"


def test_an_export_that_is_awaited_is_imported() -> None:
    server = Server("beta", "alpha")
    awaiting(server)
    server.open()
    assert any(isinstance(each, ImportSession) for each in server.say(*export()))


@pytest.mark.parametrize(
    "row", [PublisherRow(1, number=5), PublisherRow(1, elsewhere={1: EventId("b1", 1, 5)})], ids=["number", "own id"]
)
def test_another_domain_says_nothing_of_publishes_but_its_answers(row: PublisherRow) -> None:
    server = Server("beta", "alpha")
    awaiting(server)
    server.open()
    assert "says more of publishes" in closed(server.say(*export(published=row)))
    server.open()
    answered = PublisherRow(1, elsewhere={1: EventId("alpha/a1", 1, 5)})
    assert any(isinstance(each, ImportSession) for each in server.say(*export(published=answered)))


def test_an_export_that_nobody_awaits_is_refused() -> None:
    server = Server("beta", "alpha")
    server.open()
    (refused,) = answers(server.say(*export()))
    assert isinstance(refused, MoveRefused)


@pytest.mark.parametrize(
    "message",
    [
        PastAsked(1, PastQuestion(USER, "default", "phone")),
        HeadAsked(0, SessionQuestion(USER, "default")),
        HeadAsked(1),
    ],
)
def test_a_server_of_another_domain_may_not_ask_about_devices_and_sessions(message: Message) -> None:
    server = Server("beta", "alpha")
    server.open()
    assert "may not ask" in closed(server.say(message))


def test_the_end_of_the_log_is_told_once_what_is_sent_there_is_wanted() -> None:
    """The target's domain cannot want here what is not sent to it, and learns nothing of the publishes of a user."""
    server = Server("beta", "alpha")
    server.open()
    filters = (NumberedFilter(0, "T", "x > 1"), NumberedFilter(1, "U", "x > 1"))
    asked = HeadAsked(4, None, "alpha", filters, user=USER, devices=("phone",))
    outputs = server.say(HeadAsked(3, None, "gamma", filters), asked)
    assert outputs == [
        HeadWanted("alpha/a1", 3, "gamma", (), "alpha"),
        HeadWanted("alpha/a1", 4, "alpha", filters[:1], "alpha"),
    ]


def test_a_message_repeats_what_a_closed_link_may_have_lost() -> None:
    """Two servers may have one link for each of them that opened it."""
    server = Server("beta", "alpha")
    awaiting(server)
    server.open()
    server.open(LINK + 1)
    assert answers(server.give(ServerLinkClosed(LINK + 1, server.peer, "lost"))) == [MoveAwaited(MOVE)]


def test_a_session_that_is_taken_needs_no_link_any_more() -> None:
    server = Server("alpha", "beta")
    started(server)
    (leaving,) = server.handovers._leaving._moves.values()
    move = leaving.move
    assert DisconnectServer("beta/b1") in server.say(MoveTaken(move))


def test_a_session_that_the_target_has_whole_needs_no_link_although_nobody_has_said_so() -> None:
    """The broker has no export of it any more when it is asked for it again."""
    server = Server("alpha", "beta")
    started(server)
    (leaving,) = server.handovers._leaving._moves.values()
    leaving.stage = "fenced"
    outputs = server.give(SessionMoveRefused(USER, "default", "it has left"))
    assert DisconnectServer("beta/b1") in outputs
    assert ResumePublishes(USER, "default") in outputs
