"""A long queue follows its session in pieces: steps, order, crashes of both servers, and how much is on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB
from tests.peers.handover_town import KEY, Town
from wanderbus.broker.queues.stored_blocks import QueuePiece, StoredGap
from wanderbus.broker.state.exported_session import decode_export, encode_export, encode_piece, export_session
from wanderbus.peers.handover.leaving_sessions import PIECE_BYTES, PIECES_MAX
from wanderbus.peers.handover.messages import (
    HANDOVER_PREFIX,
    Move,
    MoveReady,
    MoveRefused,
    MoveTaken,
    RestWanted,
    decode,
    parts_of,
)
from wanderbus.protocol import Notify
from wanderbus.records import ExportTaken, QueueContinued, SessionImported

COUNT = 20
STEPS = [
    ("south", "north", "export"),
    ("north", "south", "RestWanted"),
    *[("south", "north", "rest")] * PIECES_MAX,
    *[("north", "south", "RestWanted"), ("south", "north", "rest")] * (COUNT // 2 - 1 - PIECES_MAX),
    *[("north", "south", "RestWanted")] * (PIECES_MAX - 1),
    ("north", "south", "MoveTaken"),
]
"""From the export on: of ten pieces, the first is in it."""


def long_queue() -> Town:
    """The session on its way, after the fence."""
    town = Town(waiting=COUNT)
    town["south"].move()
    while not town["south"].broker.state.exports:
        town.deliver()
    town.trace.clear()
    return town


def received(town: Town) -> list[object]:
    """Return what the phone gets at north, with an event that was published there after the fence."""
    north = town["north"]
    north.publish(north.attach(BOB, "desk", epoch=9), COUNT + 1)
    return north.stream(north.attach(ALICE, "phone", epoch=9))


def is_over(town: Town) -> bool:
    """Return whether the whole session is at north, and nothing of it anywhere else."""
    south, north = town["south"].broker.state, town["north"].broker.state
    left = [*south.exports, *south.rests, *south.events.rows, *north.awaited]
    return town["north"].has_session and not left and not south.queue.left(KEY) and not north.sessions[KEY].source


def test_l02_a_long_queue_takes_these_steps_and_is_read_meanwhile() -> None:
    town = long_queue()
    north = town["north"]
    while not north.written(QueueContinued):
        town.deliver()
    phone = north.attach(ALICE, "phone")
    assert [each.number for each in north.received(phone, Notify)] == [1, 2, 3, 4]
    assert not town["south"].ended
    rows = {server: town[server].handovers.rows() for server in ("south", "north")}
    assert [rows["south"]["north"]["leaving"], rows["north"]["south"]["arriving"]] == [1, 1]
    town.run()
    assert sorted(town.trace) == sorted(STEPS)
    assert [each.number for each in north.received(phone, Notify)] == list(range(1, COUNT + 1))
    assert town["south"].records_of_moves == ["SessionFenced", *["ExportTaken"] * 9, "ExportDropped"]
    assert north.records_of_moves == ["SessionAwaited", "SessionImported", *["QueueContinued"] * 9]
    assert is_over(town)


def test_l02_the_messages_of_a_move_are_little_more_than_its_export() -> None:
    town = Town(waiting=0, piece_bytes=PIECE_BYTES)
    south = town["south"]
    bob = south.attach(BOB, "desk", epoch=2)
    for number in range(1, 1_001):
        south.publish(bob, number, Filling="x" * 1_000)
    whole = len(encode_export(export_session(south.broker.state, ALICE, "default", 2)))
    south.move()
    size = 0
    while town.sent:
        size += sum(len(payload) for *_, payload in town.sent)
        waiting = len(town.sent)
        for _ in range(waiting):
            town.deliver()
    assert is_over(town)
    assert len(town["north"].written(QueueContinued)) >= 3
    assert size <= 1.2 * whole, (size, whole)


def test_l02_no_more_than_some_pieces_are_on_their_way() -> None:
    town = long_queue()
    outstanding = []
    while town.deliver():
        kinds = [kind for *_, kind in town.trace]
        sent = kinds.count("rest") + sum(sender == "south" for sender, *_ in town.sent)
        outstanding.append(sent + 1 - kinds.count("RestWanted") if "RestWanted" in kinds else 0)
    assert max(outstanding) == PIECES_MAX


@pytest.mark.parametrize("what", ["cut", "replace", "south", "south with rows", "north", "north with rows"])
def test_l02_each_notification_comes_once_in_order_if_anything_breaks_at_any_step(what: str) -> None:
    for delivered in range(len(STEPS) + 1):
        town = long_queue()
        for name in ("south", "north"):
            town[name].save()
        for _ in range(delivered):
            town.deliver()
        if what in ("cut", "replace"):
            link = town.link("south", "north")
            if what == "replace":  # the new link opens before the other one closes
                town.open("north", "south")
                town.deliver()
            town.cut(link)
            if what == "cut":
                town.open("south", "north")
        else:
            town.crash(what.split()[0], with_rows="rows" in what)
        town.run()
        assert is_over(town), delivered
        assert len(town["north"].written(SessionImported)) == 1
        assert len(town["north"].written(QueueContinued)) == COUNT // 2 - 1, delivered
        assert received(town) == list(range(1, COUNT + 2)), delivered


def test_l02_a_device_that_comes_to_the_head_leaves_the_rest_on_its_way() -> None:
    town = long_queue()
    while not town["north"].has_session:
        town.deliver()
    town["north"].locate("10.2.0.7")
    town.run()
    assert town.trace.count(("north", "south", "MoveTaken")) == 2
    assert is_over(town)
    assert received(town) == list(range(1, COUNT + 2))


def test_l02_calls_go_to_the_target_once_it_has_the_head() -> None:
    town = long_queue()
    south = town["south"].broker.state
    assert KEY in south.exports
    while not town["south"].written(ExportTaken):
        town.deliver()
    assert KEY not in south.exports
    assert KEY in south.rests


def test_l02_a_session_moves_on_once_its_queue_is_whole() -> None:
    town = long_queue()
    while not town["north"].has_session:
        town.deliver()
    town["north"].move("east")
    assert (
        "the rest of the queue of the session 'default' is on its way here from south" in town["north"].ended[0].reason
    )
    town.run()
    town["north"].move("south")
    town.run()
    assert town["north"].ended[-1].reason == ""
    south = town["south"]
    assert south.stream(south.attach(ALICE, "phone", epoch=9)) == list(range(1, COUNT + 1))
    assert not [*south.broker.state.exports, *south.broker.state.rests]


@pytest.mark.parametrize("waiting", [1, COUNT])
def test_u12_a_target_of_an_earlier_version_gets_a_queue_whole_or_not_at_all(waiting: int) -> None:
    town = Town(waiting=waiting)
    south, north = town["south"], town["north"]
    south.move()
    while not isinstance(decode(town.sent[0][2][1:]), MoveReady):
        town.deliver()
    sender, link, _ = town.sent.popleft()
    move = Move(ALICE, "default", north.broker.state.awaited[KEY].owner_epoch)
    town.sent.appendleft((sender, link, HANDOVER_PREFIX + msgspec.msgpack.encode([2, move])))
    town.run()
    if waiting == 1:
        assert is_over(town)
        assert ("south", "north", "rest") not in town.trace
    else:
        assert "north has an earlier version, which takes no queue of" in south.ended[0].reason
        assert [south.has_session, *north.broker.state.awaited] == [True]


def test_a_third_server_neither_sends_the_rest_nor_takes_it() -> None:
    town = long_queue()
    while not town["north"].has_session:
        town.deliver()
    move = Move(ALICE, "default", town["north"].broker.state.sessions[KEY].owner_epoch)
    piece = encode_piece(QueuePiece(after=2, through=40, is_last=True))
    town.say("east", "north", *parts_of(move, "rest", piece))
    assert not town["north"].written(QueueContinued)
    town.say("east", "south", RestWanted(move, COUNT), MoveTaken(move))
    assert town["south"].broker.state.exports
    assert town["south"].broker.state.exports


@pytest.mark.parametrize("is_taken", [False, True])
def test_l02_a_session_that_has_left_comes_back_from_nobody_but_its_next_owner(is_taken: bool) -> None:
    town = long_queue()
    while is_taken and not town["south"].written(ExportTaken):
        town.deliver()
    town.sent.clear()
    town.links.clear()
    town["south"].restart()  # it does not reach north
    town.open("south", "east")
    later = Move(ALICE, "default", town["south"].broker.state.sessions[KEY].owner_epoch + 1)
    town.say("east", "south", *parts_of(later, "offer", b"\x90"))
    assert town.answers("south") == [MoveRefused(later, "the session is on its way to north")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda piece: b"?",
        lambda piece: changed(piece, events=piece.events[1:]),
        lambda piece: changed(piece, through=piece.after),
        lambda piece: changed(piece, after=piece.through, through=piece.through + 9),
        lambda piece: entries(piece, place=70),
        lambda piece: entries(piece, origin=3),
        lambda piece: entries(piece, match=3),
        lambda piece: entries(piece, place=5),
        lambda piece: matching(piece, "of-bob"),
        lambda piece: changed(piece, covered=(("of-bob", 9),)),
        lambda piece: gap(piece, 1),
        lambda piece: gap(piece, 99),
    ],
)
def test_a_piece_that_is_none_closes_the_link_and_changes_nothing(damage: Callable[[QueuePiece], bytes]) -> None:
    town = long_queue()
    north = town["north"]
    of_bob = north.subscribed(north.attach(BOB, "desk")).id
    while not north.has_session:
        town.deliver()
    left = town["south"].broker.state.queue.left(KEY)
    assert left is not None
    piece, length = left.piece(2, 300), len(north.log)
    move = Move(ALICE, "default", north.broker.state.sessions[KEY].owner_epoch)
    data = damage(piece).replace(b"\xa6of-bob", b"\xd9" + bytes([len(of_bob)]) + of_bob.encode())
    town.say("south", "north", *parts_of(move, "rest", data))
    assert "a piece of a queue" in north.closed[0].reason
    assert len(north.log) == length


def test_l02_a_piece_or_an_export_that_is_none_of_the_session_changes_nothing() -> None:
    town = long_queue()
    south, north = town["south"].broker.state, town["north"]
    of_bob = north.subscribed(north.attach(BOB, "desk"))
    exported = decode_export(south.exports[KEY].export)
    row = msgspec.structs.replace(exported.subscriptions[0], subscription=of_bob)
    for lie in ({"subscriptions": (row,)}, {"ended": (row,)}, {"events": ()}):
        length, link = len(north.log), town.link("south", "north")
        move = Move(ALICE, "default", south.sessions[KEY].owner_epoch)
        data = encode_export(msgspec.structs.replace(exported, **lie))
        town.say("south", "north", *parts_of(move, "export", data))
        assert "not one of this session" in north.closed[-1].reason
        assert (len(north.log), link in town.links) == (length, False)
        town.open("south", "north")


def changed(piece: QueuePiece, **values: Any) -> bytes:
    return encode_piece(msgspec.structs.replace(piece, **values))


def entries(piece: QueuePiece, **values: Any) -> bytes:
    """Change every entry of the only block."""
    ((number, block),) = piece.blocks
    several = tuple(msgspec.structs.replace(each, **values) for each in block.entries)
    return changed(piece, blocks=((number, msgspec.structs.replace(block, entries=several)),))


def matching(piece: QueuePiece, subscription: str) -> bytes:
    ((number, block),) = piece.blocks
    several = tuple(msgspec.structs.replace(each, subscriptions=(subscription,)) for each in block.matches)
    return changed(piece, blocks=((number, msgspec.structs.replace(block, matches=several)),))


def gap(piece: QueuePiece, at: int) -> bytes:
    ((number, block),) = piece.blocks
    gaps = (StoredGap("x", at, at, {"y": 1}, {}),)
    return changed(piece, blocks=((number, msgspec.structs.replace(block, gaps=gaps)),))
