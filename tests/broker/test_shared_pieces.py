"""Sessions that moved here and read the same piece of the log (SPEC L-04, decision 0142)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, BOB
from tests.broker.test_awaited_sessions import EPOCH, head_of, server
from wanderbus.broker.history import catch_up
from wanderbus.broker.messages import HistoryRead
from wanderbus.broker.sessions.handover_messages import AwaitSession, FenceSession, ImportSession, SessionExported
from wanderbus.protocol import Unsubscribe

CAROL = "sip:carol@example.org"


class Crowd:
    """Sessions of some users that moved to ``target``, where event 1 came meanwhile, and ask for the log in turn."""

    def __init__(self, *users: str) -> None:
        source, self.target = server("south"), server("west")
        links = {user: source.attach(user) for user in users}
        self.wanted = {user: source.subscribed(link, "N > 0") for user, link in links.items()}
        for user, link in links.items():
            source.close(link)
            self.target.give(AwaitSession(user, "default", EPOCH, "south", (self.wanted[user],)))
        head = head_of(self.target)
        self.dan = self.target.attach("sip:dan@example.org", "desk")
        self.target.publish(self.dan, 1)
        self.target.reads_history = False
        for user in users:
            source.give(FenceSession(user, "default", EPOCH, "west", (self.wanted[user].id,), (head,)))
            self.target.give(ImportSession(source.of_kind(SessionExported)[-1].export))

    def sharing(self) -> list[str]:
        """Return the subscriptions that read the piece which is asked for."""
        (piece,) = self.target.pieces
        return piece.identities

    def identities(self, *users: str) -> list[str]:
        return [self.wanted[user].id for user in users]

    def streams(self) -> list[list[object]]:
        """Return the stream of each user who calls the target."""
        return [self.target.stream(self.target.attach(user, "phone", epoch=2)) for user in self.wanted]


def test_l04_sessions_that_moved_here_share_the_pieces_that_they_read() -> None:
    crowd = Crowd(ALICE, BOB, CAROL)
    assert crowd.sharing() == crowd.identities(ALICE)
    crowd.target.read_history()
    assert crowd.sharing() == crowd.identities(BOB, CAROL)
    crowd.target.publish(crowd.dan, 2)
    crowd.target.read_history()
    assert crowd.target.pieces == []
    assert crowd.streams() == [[1, 2]] * 3


def test_l04_no_more_subscriptions_share_a_piece_than_are_read_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "SHARED_MAX", 2)
    crowd = Crowd(ALICE, BOB, CAROL, "sip:eve@example.org")
    crowd.target.read_history()
    assert crowd.sharing() == crowd.identities(BOB, CAROL)


def test_l04_a_piece_that_cannot_be_read_for_several_sessions_is_read_for_each_alone() -> None:
    crowd = Crowd(ALICE, BOB, CAROL)
    target = crowd.target
    target.read_history()
    (shared,) = target.pieces
    target.pieces.clear()
    target.give(HistoryRead(shared.piece, shared.first, failed="the expression of one cannot be read"))
    assert target.history_failures == []
    read = []
    while target.pieces:
        read.append(crowd.sharing())
        target.read_history()
    assert sorted(read) == [crowd.identities(BOB), crowd.identities(CAROL)]
    assert crowd.streams() == [[1]] * 3


def test_l04_a_subscription_that_ends_meanwhile_delays_no_other_that_shares_its_piece() -> None:
    crowd = Crowd(ALICE, BOB, CAROL)
    target = crowd.target
    target.read_history()
    bob = target.attach(BOB, "phone", epoch=2)
    target.ask(bob, Unsubscribe(50, crowd.wanted[BOB].id))
    target.read_history()
    assert target.pieces == []
    assert target.stream(target.attach(CAROL, "phone", epoch=2)) == [1]
