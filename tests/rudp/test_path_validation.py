"""Choice of the address to challenge, and its timeout (RFC 9000 8.2, 9.3): two simulated worlds found these cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus.machine import Address, SendDatagram
from wanderbus.rudp.frames import CHALLENGE_BYTES
from wanderbus.rudp.paths import PathValidation

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair

HERE: Address = ("192.0.2.31", 31)
STRANGER: Address = ("203.0.113.66", 66)


def test_one_packet_that_came_from_a_stranger_does_not_keep_the_peer_from_being_found() -> None:
    path = PathValidation()
    assert path.prefers(STRANGER)
    path.start(STRANGER, bytes(CHALLENGE_BYTES), 0.0)
    assert [path.prefers(HERE), path.prefers(HERE)] == [False, True]
    path.start(HERE, bytes(CHALLENGE_BYTES), 0.0)
    assert [path.prefers(source) for source in (HERE, STRANGER, HERE, HERE, STRANGER)] == [False] * 5


def test_a_response_counts_among_the_bytes_that_go_to_an_unproved_address() -> None:
    """A CHALLENGE that a relay repeats with a bystander's address is answered, but the bystander is not
    challenged too.
    """
    path = PathValidation()
    path.start(STRANGER, bytes(CHALLENGE_BYTES), 0.0)
    path.received(STRANGER, 53)
    path.answered(STRANGER, 53)
    assert path.next_challenge(53, 0.0, 0.25) is None
    path.received(STRANGER, 53)
    assert path.next_challenge(53, 0.25, 0.25) == bytes(CHALLENGE_BYTES)


def test_a_round_trip_that_was_never_measured_may_take_longer_than_the_first_timeout(make_pair: MakePair) -> None:
    """The first timeout is 0.25 s, the answer to the challenge comes after 2 s."""
    pair = make_pair()
    challenges: list[SendDatagram] = []
    sent = pair.right.take(1.0, pair.left.send(0.0, b"from elsewhere"), HERE)
    while pair.right.timer_at is not None and pair.right.timer_at < 3.0:
        sent += pair.right.fire()[1]
    challenges = [each for each in sent if each.destination == HERE]
    assert challenges
    answers = pair.left.take(2.0, challenges[:1], pair.right.address)
    pair.right.take(3.0, answers, HERE)
    assert pair.right.endpoint.counters.paths == 1
