"""A server of the domain that lies about sessions reaches no other session, and ends nobody (docs/SECURITY.md)."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from hostile.altered import lies_in, with_lie
from tests.broker.desk import ALICE, BOB
from tests.peers.handover_town import KEY, Town
from wanderbus.broker.queues.stored_blocks import StoredGap
from wanderbus.broker.sessions.handover import _behind
from wanderbus.broker.state.exported_session import decode_export, encode_export, encode_piece
from wanderbus.event import EventId
from wanderbus.limits import NUMBER_MAX
from wanderbus.peers.handover import arriving_sessions
from wanderbus.peers.handover.messages import (
    Content,
    Move,
    MoveRefused,
    encode_offer,
    parts_of,
)
from wanderbus.records import Cut
from wanderbus.subscription import Subscription

STRIDES: Final[dict[Content, int]] = {"export": 3, "rest": 1}
"""One of so many lies is tried: without a common divisor with the lies of a kind."""


def leaving_town(what: Content) -> tuple[Town, bytes]:
    """Return a town and the export of the session that has left south, or the rest of its queue."""
    town = Town(waiting=4, piece_bytes=300 if what == "rest" else 10_000)
    south = town["south"].broker.state
    town["south"].move()
    while not town["north"].has_session if what == "rest" else not south.exports:
        town.deliver()
    town.sent.clear()
    if what == "export":
        return town, south.exports[KEY].export
    left = south.queue.left(KEY)
    assert left is not None
    piece = left.piece(2, 10_000)
    ((number, block),) = piece.blocks
    gap = StoredGap(block.matches[0].subscriptions[0], 3, 3, {"limit": 1}, {"limit": (0,)})
    block = msgspec.structs.replace(block, entries=block.entries[1:], gaps=(gap,))
    return town, encode_piece(msgspec.structs.replace(piece, blocks=((number, block),), events=piece.events[1:]))


def use(town: Town) -> None:
    """Let the target serve the session, store it, and start again."""
    north = town["north"]
    north.save()
    north.publish(north.attach(BOB, "desk", epoch=9), 7)
    phone = north.attach(ALICE, "phone", epoch=9)
    north.take(phone, 4)
    north.later(100.0)
    town.crash("north", with_rows=True)
    town.crash("north")
    town.run()
    north.move("east")
    town.run()


@pytest.mark.parametrize("what", ["export", "rest"])
def test_no_lie_in_a_session_ends_the_server_that_it_goes_to(what: Content) -> None:
    true = leaving_town(what)[1]
    lies = list(lies_in(msgspec.msgpack.decode(true)))[:: STRIDES[what]]
    closed = 0
    for path, lie in lies:
        town, data = leaving_town(what)
        move = Move(ALICE, "default", town["south"].broker.state.sessions[KEY].owner_epoch)
        lied = msgspec.msgpack.encode(with_lie(msgspec.msgpack.decode(data), path, lie))
        before = len(town["north"].log)
        town.say("south", "north", *parts_of(move, what, lied))
        if town["north"].closed:
            closed += 1
            assert len(town["north"].log) == before, (path, lie)
        else:
            use(town)
    assert len(lies) / 4 < closed < len(lies)


@pytest.mark.parametrize("epoch", [-1, 2**63, 2**64 - 1])
def test_an_epoch_that_the_log_cannot_hold_closes_the_link(epoch: int) -> None:
    town = Town()
    town.say("south", "north", *parts_of(Move(ALICE, "default", epoch), "offer", encode_offer(())))
    assert "not a message about a session that moves" in town["north"].closed[0].reason
    assert not town["north"].broker.state.awaited


def test_the_cut_behind_the_last_number_of_all_can_be_read_again() -> None:
    """A server may give its event that number; the record of the next fence has the cut."""
    end, last = EventId("east", 1, 5), EventId("east", 1, NUMBER_MAX)
    cut = Cut(_behind(end, last), end)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(cut), type=Cut) == cut


def test_a_target_counts_what_waits_in_a_session() -> None:
    """Something would have to give way until the limits hold, and nothing would be there."""
    town, data = leaving_town("export")
    exported = decode_export(data)
    false = msgspec.structs.replace(exported.session, waiting=2**40, queued=2**40, queued_bytes=2**40)
    move = Move(ALICE, "default", exported.session.owner_epoch)
    lied = encode_export(msgspec.structs.replace(exported, session=false))
    town.say("south", "north", *parts_of(move, "export", lied))
    row = town["north"].broker.state.sessions[KEY]
    assert (row.waiting, row.queued, row.queued_bytes) == (4, 4, exported.session.queued_bytes)


def test_an_offer_with_a_subscription_of_somebody_else_changes_nothing() -> None:
    """The subscription would be wanted no longer once the offer is withdrawn."""
    town = Town()
    north = town["north"]
    of_bob = north.subscribed(north.attach(BOB, "desk"))
    town["south"].move()
    town.deliver()
    (awaited,) = north.broker.state.awaited.values()
    length = len(north.log)
    for taken in (of_bob, *awaited.subscriptions):
        move = Move("sip:eve@example.org", "default", 9)
        offered = msgspec.structs.replace(taken, owner=move.user)
        town.say("east", "north", *parts_of(move, "offer", encode_offer((offered,))))
        assert "a subscription of another session" in north.closed[-1].reason
        assert len(north.log) == length
        town.open("east", "north")


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_server_offers_no_more_sessions_than_can_be_on_their_way(
    monkeypatch: pytest.MonkeyPatch, with_rows: bool
) -> None:
    monkeypatch.setattr(arriving_sessions, "MOVES_MAX", 2)
    town = Town()
    moves = [Move(f"sip:u{each}@example.org", "default", 9) for each in range(3)]
    offered = [Subscription(f"east-{each}", move.user, "default", "Trade", "") for each, move in enumerate(moves)]
    for move, subscription in zip(moves, offered, strict=True):
        town["north"].save()
        town.crash("north", with_rows=with_rows)
        town.say("east", "north", *parts_of(move, "offer", encode_offer((subscription,))))
    assert len(town["north"].broker.state.awaited) == 2
    refused = [each for each in town.answers("north") if isinstance(each, MoveRefused)]
    assert [(each.move, each.reason) for each in refused] == [
        (moves[2], "2 sessions are on their way already; try again later")
    ]
