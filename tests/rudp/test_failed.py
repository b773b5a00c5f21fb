"""A failed connection: it can be probed, answers probes, and does nothing else (SPEC D-10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rudp.conftest import numbers
from wanderbus.machine import SendDatagram, TimerFired
from wanderbus.rudp import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    FinishSending,
    OpenConnection,
    Probe,
    ProbeAnswered,
)
from wanderbus.rudp.frames import PING, encode_ack, encode_data, encode_reset
from wanderbus.rudp.probing import PROBES_MAX

if TYPE_CHECKING:
    from tests.rudp.conftest import MakePair, Pair, Side

BOTH_MODES = pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])


def fail(side: Side) -> None:
    side.send(0.0, b"lost")
    while not side.reports:
        side.fire()
    assert side.reports == [ConnectionFailed(side.local_id)]
    side.reports.clear()


def probe(side: Side, now: float) -> list[SendDatagram]:
    return side.step(now, Probe(side.local_id))


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def failed(request: pytest.FixtureRequest, make_pair: MakePair) -> Pair:
    """A pair whose left side has failed."""
    pair: Pair = make_pair(sealed=request.param, retries_max=1)
    fail(pair.left)
    return pair


def test_a_probe_is_one_ping_that_is_not_repeated(failed: Pair) -> None:
    left = failed.left
    sent = probe(left, 100.0)
    assert failed.controls(sent) == [(PING, b"")]
    assert left.timer_at is None
    assert failed.controls(probe(left, 101.0)) == [(PING, b"")], "another is another try"


def test_an_answered_probe_is_reported_once(failed: Pair) -> None:
    left = failed.left
    answers = failed.right.take(100.1, probe(left, 100.0))
    assert left.take(100.2, answers + answers) == []
    assert left.reports == [ProbeAnswered(left.local_id)]
    more = failed.right.take(200.1, probe(left, 200.0))
    assert [again for *_, again in failed.acks(more)] != [0], "the first is marked again"
    left.take(200.2, more)
    assert left.reports == [ProbeAnswered(left.local_id)] * 2


def test_a_late_answer_counts_and_a_repeated_mark_too(failed: Pair) -> None:
    left = failed.left
    first, second = probe(left, 100.0), probe(left, 101.0)
    failed.right.take(101.1, first)
    left.take(101.3, failed.right.take(101.2, second))
    assert left.reports == [ProbeAnswered(left.local_id)] * 2


def test_outstanding_probes_are_bounded(failed: Pair) -> None:
    left = failed.left
    probes = [probe(left, 100.0 + n)[0] for n in range(3 * PROBES_MAX)]
    left.take(200.0, failed.right.take(199.0, probes))
    assert left.reports == [ProbeAnswered(left.local_id)] * PROBES_MAX


def test_both_sides_failed_and_still_answer_each_others_probes(make_pair: MakePair) -> None:
    pair = make_pair(retries_max=1)
    fail(pair.left)
    fail(pair.right)
    pair.left.take(100.2, pair.right.take(100.1, probe(pair.left, 100.0)))
    pair.right.take(100.5, pair.left.take(100.4, probe(pair.right, 100.3)))
    assert pair.left.reports == [ProbeAnswered(pair.left.local_id)]
    assert pair.right.reports == [ProbeAnswered(pair.right.local_id)]


def test_it_delivers_and_acknowledges_nothing(failed: Pair) -> None:
    sent = failed.right.send(100.0, b"to one that has failed")
    assert failed.left.take(100.1, sent) == []
    assert failed.left.received == []
    assert failed.left.endpoint.counters.failed == failed.left.endpoint.counters.dropped == 1
    answers = failed.left.take(100.3, probe(failed.right, 100.2))
    marks = [(newest, fresh | again) for newest, fresh, again in failed.acks(answers)]
    assert marks == [(numbers(sent)[0] + 1, 0)], "what was not taken is not marked either"


def test_it_sends_nothing_and_holds_nothing(failed: Pair) -> None:
    left = failed.left
    assert left.send(100.0, b"x") == []
    assert left.step(100.0, FinishSending(left.local_id)) == []
    assert left.step(100.0, TimerFired(left.local_id)) == []
    assert left.endpoint.unsent_bytes(left.local_id) == 0
    assert left.endpoint.rtt_s(left.local_id) is None
    assert not left.endpoint.all_confirmed(left.local_id), "what was lost stays unconfirmed"


def test_an_ack_of_something_else_is_no_answer(make_pair: MakePair) -> None:
    pair = make_pair(retries_max=1)
    fail(pair.right)
    probe(pair.right, 100.0)
    for number, ack in enumerate((encode_ack(0, 0, 0), encode_ack(2**64 - 1, 2**64 - 1, 0), encode_ack(1, 1, 0))):
        pair.right.step(101.0, pair.from_left(number, ack))
    assert pair.right.reports == []
    pair.right.step(102.0, pair.from_left(9, encode_ack(2, 0, 0) + encode_data(0, False, b"with it")))
    assert pair.right.reports == [ProbeAnswered(pair.right.local_id)]
    assert pair.right.received == []


def test_probes_follow_a_change_of_path(failed: Pair) -> None:
    assert failed.left.step(100.0, ChangePath(failed.left.local_id, ("198.51.100.1", 1), 1)) == []
    assert [d.destination for d in probe(failed.left, 101.0)] == [("198.51.100.1", 1)]


def test_a_reset_ends_it(failed: Pair) -> None:
    token = failed.left.connection.peer_token
    assert token is not None
    reset = encode_reset(failed.left.local_id, failed.right.local_id, token)
    failed.left.take(100.0, [SendDatagram("data", failed.left.address, reset)])
    assert failed.left.reports == [ConnectionReset(failed.left.local_id)]
    assert probe(failed.left, 101.0) == []


def test_closing_or_opening_again_ends_it(failed: Pair) -> None:
    left = failed.left
    left.step(100.0, OpenConnection(left.local_id, failed.right.endpoint.allocate(), failed.right.address, 0))
    assert len(left.send(101.0, b"a new connection")) == 1
    fail(left)
    left.step(200.0, CloseConnection(left.local_id))
    assert probe(left, 201.0) == []
