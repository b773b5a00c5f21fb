"""Machine that moves sessions between servers: steps, repeats, refusals and hostile messages (SPEC L-02, L-06)."""

from __future__ import annotations

from collections import deque
from itertools import zip_longest

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB
from tests.peers.handover_town import KEY, NAMES, Town
from wanderbus.broker.sessions.handover_messages import (
    FenceSession,
    Head,
    ImportSession,
    OthersAsked,
    SessionMoveEnded,
    SessionQuestion,
    SessionReported,
)
from wanderbus.broker.state.exported_session import encode_export, export_session
from wanderbus.event import EventId
from wanderbus.peers.handover import arriving_sessions, leaving_sessions
from wanderbus.peers.handover import messages as handover_messages
from wanderbus.peers.handover.leaving_sessions import MOVE_S
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
    Part,
    decode,
    encode,
    encode_offer,
    parts_of,
)
from wanderbus.peers.messages import ServerMessageReceived
from wanderbus.protocol import Notify
from wanderbus.records import SessionImported
from wanderbus.subscription import Subscription

STEPS = [
    ("south", "north", "offer"),
    ("north", "south", "MoveReady"),
    ("south", "east", "HeadAsked"),
    ("south", "north", "HeadAsked"),
    ("east", "south", "HeadAnswered"),
    ("north", "south", "HeadAnswered"),
    ("south", "north", "export"),
    ("north", "south", "MoveTaken"),
]
MOVED = SessionMoveEnded(ALICE, "default", "north")


def moved_to_north(town: Town) -> bool:
    """True if Alice's session is at north alone, and nobody keeps anything for the move."""
    south, north = town["south"].broker.state, town["north"].broker.state
    assert not [*south.exports, *north.exports, *south.awaited, *north.awaited]
    assert town["south"].has_session is not town["north"].has_session, "one owner"
    return town["north"].has_session


def waits_at_south(town: Town, reason: str) -> None:
    """Assert that Alice's session has stayed, and that nobody waits for it."""
    (ended,) = town["south"].ended
    assert reason in ended.reason
    town.run()
    assert not moved_to_north(town)
    assert town["south"].broker.state.sessions[KEY].waiting == 2


def test_l02_a_move_takes_these_steps_and_nothing_else() -> None:
    town = Town()
    town["south"].move()
    town.run()
    assert town.trace == STEPS
    assert town["south"].ended == [MOVED]
    assert town["south"].records_of_moves == ["SessionFenced", "ExportDropped"]
    assert town["north"].records_of_moves == ["SessionAwaited", "SessionImported"]
    assert town["east"].records_of_moves == []
    assert moved_to_north(town)
    assert not town["south"].move_timers
    phone = town["north"].attach(ALICE, "phone")
    assert [each.number for each in town["north"].received(phone, Notify)] == [1, 2]


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("delivered", range(len(STEPS) + 1))
def test_l02_a_broken_link_delays_a_move_and_repeats_what_was_lost(delivered: int, again: bool) -> None:
    town = Town()
    town["south"].move()
    for _ in range(delivered):
        town.deliver()
    link = town.link("south", "north")
    if again:  # the new link replaces the other one only after it has opened
        town.open("north", "south")
        town.cut(link)
    else:
        town.cut(link)
        town.open("south", "north")
    town.run()
    assert moved_to_north(town)
    assert town["south"].ended == [MOVED]
    assert len(town["north"].written(SessionImported)) == 1


@pytest.mark.parametrize("delivered", range(len(STEPS) + 1))
def test_l02_a_third_server_that_reconnects_is_asked_for_its_head_again(delivered: int) -> None:
    town = Town()
    town["south"].move()
    for _ in range(delivered):
        town.deliver()
    town.cut(town.link("south", "east"))
    town.run()
    town.open("east", "south")
    town.run()
    assert moved_to_north(town)


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("delivered", range(len(STEPS) + 1))
def test_l02_a_crash_leaves_the_session_at_one_server(delivered: int, name: str, with_rows: bool) -> None:
    town = Town()
    town["south"].move()
    for _ in range(delivered):
        town.deliver()
    town[name].save()
    town.crash(name, with_rows=with_rows)
    town.run()
    # Before its fence, a source that crashes forgets the move; every other server goes on.
    assert moved_to_north(town) is not (name == "south" and delivered < STEPS.index(("south", "north", "export")))
    owner = town["north" if town["north"].has_session else "south"]
    assert owner.broker.state.sessions[KEY].waiting == 2


# Refusals ------------------------------------------------------------------------------------------------------------


def test_l02_a_move_to_an_unknown_server_names_the_others() -> None:
    town = Town()
    town["south"].move("west")
    reason = "'west' is no other server that serves devices; those are east, north"
    assert town["south"].ended == [SessionMoveEnded(ALICE, "default", "west", reason)]
    town["south"].move("south")
    assert "'south' is no other server" in town["south"].ended[1].reason
    assert not town.sent


def test_l02_only_a_session_that_is_here_can_move() -> None:
    town = Town()
    town["south"].move(session="other")
    town["south"].move(user="sip:nobody@example.org")
    town["north"].move("south")
    reasons = [each.reason for name in ("south", "north") for each in town[name].ended]
    assert reasons == [
        f"{ALICE} has no session 'other' at this server",
        "sip:nobody@example.org has no session 'default' at this server",
        f"{ALICE} has no session 'default' at this server",
    ]


def test_l02_a_session_that_is_on_its_way_moves_once() -> None:
    town = Town()
    town["south"].move()
    town["south"].move("east")
    (ended,) = town["south"].ended
    assert ended == SessionMoveEnded(
        ALICE, "default", "east", f"the session 'default' of {ALICE} is on its way already"
    )
    town.run()
    assert town["south"].ended[1:] == [MOVED]
    assert moved_to_north(town)


def test_l02_the_number_of_moves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving_sessions, "MOVES_MAX", 1)
    town = Town()
    town["south"].move(user=BOB)
    town["south"].move()
    assert town["south"].ended == [
        SessionMoveEnded(ALICE, "default", "north", "1 sessions are on their way; try again later")
    ]


@pytest.mark.parametrize("other", ["north", "east"])
def test_l02_no_session_moves_while_a_server_cannot_be_reached(other: str) -> None:
    town = Town()
    town.cut(town.link("south", other))
    town["south"].move()
    waits_at_south(town, f"{other} cannot be reached; sessions move while all servers of the domain run")


def test_l02_a_target_that_is_not_ready_in_time_lets_the_session_stay() -> None:
    town = Town()
    town["north"].held = True
    town["south"].move()
    town.run()
    town["south"].later(MOVE_S - 0.1)
    assert town["south"].ended == []
    town["south"].later(0.2)
    waits_at_south(town, "north did not answer within 30 s")
    town["north"].held = False
    town["north"].sync()
    town.run()
    assert town["north"].records_of_moves == ["SessionAwaited", "SessionNotAwaited"]
    assert not moved_to_north(town)


def test_l02_a_server_that_does_not_tell_its_head_in_time_lets_the_session_stay() -> None:
    town = Town()
    town["south"].move()
    while town.trace[-1:] != [("south", "east", "HeadAsked")]:
        town.deliver()
    town.sent = type(town.sent)(each for each in town.sent if each[0] != "east")
    town.run()
    town["south"].later(MOVE_S + 0.1)
    waits_at_south(town, "east did not answer within 30 s")


def test_l02_a_fence_that_waits_is_withdrawn_in_time() -> None:
    town = Town()
    south = town["south"]
    south.move()
    while town.trace[-1:] != [("south", "east", "HeadAsked")]:
        town.deliver()
    # East says that it has sent something which has not come here.
    sent = Head(EventId("east", town["east"].broker.state.incarnation, 9), 1, 5)
    town.sent = type(town.sent)(each for each in town.sent if each[0] != "east")
    town.say("east", "south", HeadAnswered(1, sent))
    town.run()
    assert south.has_session
    south.later(MOVE_S + 0.1)
    waits_at_south(town, "events that other servers sent for it did not come in time")
    assert town["north"].records_of_moves == ["SessionAwaited", "SessionNotAwaited"]


def test_l02_a_target_that_has_the_session_refuses_it() -> None:
    town = Town()
    link = town["north"].attach(ALICE, "tablet")
    town["north"].subscribed(link)
    town["south"].move()
    town.run()
    (ended,) = town["south"].ended
    assert ended.reason == "the session is here, with the owner epoch 1"
    assert town["south"].has_session
    assert town["north"].records_of_moves == []
    assert not town["south"].broker.state.exports


def test_l02_a_subscription_that_is_added_meanwhile_is_offered_too() -> None:
    town = Town()
    south = town["south"]
    south.move()
    while town.trace[-1:] != [("north", "south", "MoveReady")]:
        town.deliver()
    phone = south.attach(ALICE, "phone")
    later = south.subscribed(phone, "N > 5")
    town.run()
    assert [kind for _, _, kind in town.trace].count("offer") == 2
    assert moved_to_north(town)
    assert later.id in town["north"].broker.state.subscriptions


def test_l02_a_repeated_offer_has_no_subscription_that_was_added_since() -> None:
    """Answer to the first offer, which comes behind the repeated one: it says nothing about further subscriptions."""
    town = Town()
    south = town["south"]
    south.move()
    town.deliver()
    sender, _, ready = town.sent[-1]
    town.cut(town.link("south", "north"))
    phone = south.attach(ALICE, "phone")
    later = south.subscribed(phone, "N > 5")
    link = town.open("south", "north")
    town.sent.appendleft((sender, link, ready))
    town.run()
    kinds = [kind for *_, kind in town.trace]
    assert kinds.count("offer") == 3, "the further subscription is offered behind the answer"
    assert moved_to_north(town)
    assert later.id in town["north"].broker.state.subscriptions


# Hostile messages ----------------------------------------------------------------------------------------------------


def export_of(town: Town, user: str = ALICE, epoch: int = 7, source: str = "south") -> bytes:
    """A session of south's as it would be exported."""
    exported = export_session(town["south"].broker.state, user, "default", epoch)
    return encode_export(msgspec.structs.replace(exported, source=source))


def subscription(owner: str = ALICE, session: str = "default") -> Subscription:
    town = Town()
    (row, *_) = town["south"].broker.state.subscriptions.values()
    return msgspec.structs.replace(row.subscription, owner=owner, session=session)


MOVE = Move(ALICE, "default", 7)
OFFERED = encode_offer((subscription(),))


def changes_nothing(town: Town, *messages: Message, sender: str = "south") -> list[str]:
    """Let ``sender`` say something to north; return why north has closed the link, if it has."""
    north, length = town["north"], len(town["north"].log)
    town.say(sender, "north", *messages)
    assert len(north.log) == length
    assert north.asked == []
    return [each.reason for each in north.closed]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (parts_of(MOVE, "offer", encode_offer((subscription(BOB),))), "a subscription of another session"),
        (parts_of(MOVE, "offer", encode_offer((subscription(session="x"),))), "a subscription of another session"),
        (parts_of(MOVE, "offer", b"\xc1"), "not an offer of a session"),
        (parts_of(MOVE, "export", b"\xc1"), "not an exported session"),
        ([Part(MOVE, "offer", 1, True, OFFERED)], "part 1 of a session does not follow"),
        ([Part(MOVE, "offer", 0, False, b""), Part(MOVE, "offer", 2, True, OFFERED)], "part 2 of a session does not"),
        ([Part(MOVE, "offer", 0, False, b""), Part(MOVE, "export", 1, True, OFFERED)], "part 1 of a session does not"),
        (
            [Part(MOVE, "offer", 0, False, b""), Part(Move(ALICE, "x", 7), "offer", 1, True, OFFERED)],
            "part 1 of a session does not",
        ),
    ],
)
def test_a_malformed_offer_or_export_closes_the_link_and_changes_nothing(messages: list[Part], reason: str) -> None:
    town = Town()
    (found,) = changes_nothing(town, *messages)
    assert found.startswith("south: ")
    assert reason in found


@pytest.mark.parametrize("payload", [b"", b"\x93\x63\x01\x02", b"\x92\x02\xa1x", b"\xc1"])
def test_a_message_that_is_none_closes_the_link(payload: bytes) -> None:
    town = Town()
    town["north"].hand(ServerMessageReceived(town.link("south", "north"), "south", payload))
    (closed,) = town["north"].closed
    assert "not a message about a session that moves" in closed.reason


def test_more_bytes_than_a_session_may_have_close_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving_sessions, "ARRIVING_BYTES_MAX", 1_000)
    town = Town()
    parts = [Part(MOVE, "export", number, False, bytes(400)) for number in range(3)]
    assert changes_nothing(town, *parts[:2]) == []
    (found,) = changes_nothing(town, parts[2])
    assert "more than 1000 bytes" in found
    assert not town["north"].handovers._arriving._incomplete, "the link took it along"


@pytest.mark.parametrize(
    "exported",
    [
        lambda town: export_of(town, BOB),
        lambda town: export_of(town, epoch=8),
        lambda town: export_of(town, source="east"),
    ],
)
def test_an_export_of_another_session_closes_the_link(exported: object) -> None:
    town = Town()
    assert callable(exported)
    (found,) = changes_nothing(town, *parts_of(MOVE, "export", exported(town)))
    assert "an export is that of another session" in found


def test_an_export_that_nobody_awaits_is_refused() -> None:
    town = Town()
    assert changes_nothing(town, *parts_of(MOVE, "export", export_of(town))) == []
    assert town.answers("north") == [MoveRefused(MOVE, f"the session 'default' of {ALICE} is not awaited")]


def test_an_awaited_session_comes_from_its_source_alone() -> None:
    town = Town()
    town["south"].move()
    town.deliver()
    assert town["north"].records_of_moves == ["SessionAwaited"]
    town["north"].asked.clear()
    (row,) = town["north"].broker.state.awaited.values()
    move = Move(ALICE, "default", row.owner_epoch)
    exported = export_of(town, epoch=row.owner_epoch, source="east")
    assert changes_nothing(town, *parts_of(move, "export", exported), sender="east") == []
    assert changes_nothing(town, MoveWithdrawn(move), sender="east") == []
    assert changes_nothing(town, MoveWithdrawn(MOVE)) == []
    assert KEY in town["north"].broker.state.awaited


def test_an_awaited_session_is_offered_by_no_other_server() -> None:
    town = Town()
    town["south"].move()
    town.deliver()
    town["north"].asked.clear()
    for epoch in (MOVE.owner_epoch, 2**62):
        move = Move(ALICE, "default", epoch)
        assert changes_nothing(town, *parts_of(move, "offer", OFFERED), sender="east") == []
        sender, link, payload = town.sent.pop()
        refused = decode(payload[1:])
        assert (sender, link) == ("north", town.link("north", "east"))
        assert isinstance(refused, MoveRefused)
        assert refused.reason == "the session is awaited from south"
    town.run()
    assert moved_to_north(town)


def test_an_offer_for_a_session_that_is_on_its_way_is_refused_at_both_ends() -> None:
    """Two servers may have sessions of one name; each would wait for the other's for ever."""
    town = Town()
    phone = town["north"].attach(ALICE, "phone")
    town["north"].close(phone)
    town["south"].move("north")
    town["north"].move("south")
    town.run()
    assert [len(town[name].ended) for name in ("south", "north")] == [1, 1]
    assert all("on its way" in each.reason for name in ("south", "north") for each in town[name].ended)
    assert not town["south"].broker.state.awaited
    assert not town["north"].broker.state.awaited


def test_a_server_that_is_ready_for_a_session_that_stays_is_told_so() -> None:
    """An offer may come behind its withdrawal, on another link."""
    town = Town()
    town.say("north", "south", MoveReady(MOVE))
    assert town.answers("south") == [MoveWithdrawn(MOVE)]


def test_a_refused_offer_asks_the_broker_nothing() -> None:
    """The broker would answer, and the answer would be taken for one about a session that comes."""
    town = Town()
    south = town["south"]
    south.move()
    (leaving,) = south.handovers._leaving._moves.values()
    south.asked.clear()
    town.say("north", "south", MoveRefused(leaving.move, "no"))
    assert south.asked == []
    assert [each.reason for each in south.ended] == ["no"]


def test_sessions_that_are_ready_at_once_share_the_questions_for_the_heads() -> None:
    town = Town()
    south, user = town["south"], "sip:carol@example.org"
    south.subscribed(south.attach(user, "phone"), "N > 0")
    for each in (ALICE, user):
        south.move(user=each)
    epochs = {each.move.user: each.move.owner_epoch for each in south.handovers._leaving._moves.values()}
    town.sent.clear()
    ready = [MoveReady(Move(each, "default", epochs[each])) for each in (ALICE, user)]
    link = town.link("south", "north")
    south.hand(*[ServerMessageReceived(link, "north", encode(each)[1:]) for each in ready])
    assert [message for message in town.answers("south") if isinstance(message, HeadAsked)] == [HeadAsked(1)] * 2
    for server in ("north", "east"):
        town.say(server, "south", HeadAnswered(1, Head(town[server].broker.state.next_id)))
    assert {each.user for each in south.asked if isinstance(each, FenceSession)} == {ALICE, user}


@pytest.mark.parametrize("sender", ["north", "east"])
def test_a_server_that_is_no_target_ends_no_move(sender: str) -> None:
    town = Town()
    south = town["south"]
    south.move()
    epoch = south.handovers._leaving._moves[ALICE, "default"].move.owner_epoch
    for move in (MOVE, Move(BOB, "default", epoch), *([Move(ALICE, "default", epoch)] if sender == "east" else [])):
        town.say(sender, "south", MoveReady(move), MoveTaken(move), MoveRefused(move, "no"))
        assert south.asked == []
        assert south.ended == []
    town.run()
    assert moved_to_north(town)


def test_heads_count_from_their_own_server_and_for_their_own_question() -> None:
    town = Town()
    south = town["south"]
    south.move()
    while town.trace[-1:] != [("north", "south", "MoveReady")]:
        town.deliver()
    head = Head(EventId("east", 1, 1))
    town.say("north", "south", HeadAnswered(1, head), HeadAnswered(2, Head(EventId("north", 1, 1))))
    town.say("east", "south", HeadAnswered(7, head))
    assert not [each for each in south.asked if isinstance(each, FenceSession)]


def test_a_source_that_knows_of_no_move_says_so() -> None:
    town = Town()
    town.say("north", "south", MoveAwaited(MOVE))
    assert town.answers("south") == [MoveWithdrawn(MOVE)]


def test_any_server_is_told_the_head() -> None:
    town = Town()
    town.say("north", "south", HeadAsked(3))
    (answer,) = town.answers("south")
    assert isinstance(answer, HeadAnswered)
    assert (answer.request, answer.head.end.number) == (3, town["south"].broker.state.offset)


# Durability ----------------------------------------------------------------------------------------------------------


def test_l02_a_repeated_export_is_confirmed_once_the_import_is_durable() -> None:
    town = Town()
    town["south"].move()
    while town.trace[-1:] != [("north", "south", "HeadAnswered")]:
        town.deliver()
    north = town["north"]
    north.held = True
    town.run()
    assert north.has_session
    town.cut(town.link("south", "north"))
    town.open("south", "north")
    town.run()
    assert [each for each in north.asked if isinstance(each, ImportSession)][1:], "the export came again"
    assert ("north", "south", "MoveTaken") not in town.trace
    assert KEY in town["south"].broker.state.exports
    north.held = False
    north.sync()
    town.run()
    assert moved_to_north(town)


def test_l02_a_large_session_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_messages, "PART_BYTES_MAX", 50)
    town = Town()
    town["south"].move()
    town.run()
    kinds = [kind for _, _, kind in town.trace]
    assert min(kinds.count("offer"), kinds.count("export")) > 3
    assert moved_to_north(town)


def test_l02_parts_on_two_links_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover_messages, "PART_BYTES_MAX", 20)
    town = Town()
    town["south"].move()
    town.deliver()
    town.deliver()
    town.open("north", "south")
    newest = town.link("south", "north")
    former, later = ([each for each in town.sent if (each[1] == newest) is is_new] for is_new in (False, True))
    assert len(former) > 3
    town.sent = deque(each for pair in zip_longest(former, later) for each in pair if each is not None)
    town.run()
    assert town["north"].closed == []
    assert moved_to_north(town)


def test_t01_both_ends_list_a_session_on_its_way() -> None:
    town = Town()
    south, north = town["south"], town["north"]
    assert south.handovers.rows() == north.handovers.rows() == {}
    south.move()
    town.deliver()
    began_us = south.wall_us
    leaving, arriving = ({name: 1, f"{name}_since_us": began_us} for name in ("leaving", "arriving"))
    assert (south.handovers.rows(), north.handovers.rows()) == ({"north": leaving}, {"south": arriving})
    while "export" not in {kind for _, _, kind in town.trace}:
        town.deliver()
    town.crash("south")
    town.cut(town.link("south", "north"))
    assert south.handovers.rows() == {"north": leaving}, "north has not confirmed that it has the session"
    town.open("south", "north")
    town.run()
    assert south.handovers.rows() == north.handovers.rows() == {}


def test_j05_every_server_is_asked_for_a_session_and_its_owner_says_so() -> None:
    town, question = Town(), SessionQuestion(ALICE, "default")
    north = town["north"]
    north.hand(OthersAsked(question))
    town.run()
    reports = [each for each in north.asked if isinstance(each, SessionReported)]
    assert {each.server: each.is_here for each in reports} == {"south": True, "east": False}
    assert {each.question for each in reports} == {question}


def test_u12_a_question_about_a_session_is_of_a_kind_that_a_server_of_the_version_before_knows() -> None:
    town = Town()
    town["north"].hand(OthersAsked(SessionQuestion(ALICE, "default")))
    kinds = [
        msgspec.msgpack.decode(payload.removeprefix(handover_messages.HANDOVER_PREFIX))[0]
        for _, _, payload in town.sent
    ]
    assert kinds == [7, 7], "the former version has kinds 1 to 11"
