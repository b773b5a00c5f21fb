"""Flood limits for each source (SPEC C-20)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.phone_world import BOB, Phone, World
from wanderbus.machine import Address, SendOnStream, StreamReceived
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.sip.message.message import Response, encode_message, make_response, parse_message
from wanderbus.sip.transaction.flood_limits import REQUEST_BYTES, FloodGuard
from wanderbus.sip.transaction.transaction_states import Judgement

LIMITS = FloodLimits(requests_per_s=2.0, burst_requests=4.0, refusals_per_s=0.5, sources_max=3)


def admitted(guard: FloodGuard, source: str, now: float, count: int) -> int:
    return [guard.judge(source, now) for _ in range(count)].count(Judgement.ADMITTED)


def test_a_burst_and_then_the_rate() -> None:
    guard = FloodGuard(LIMITS)
    assert admitted(guard, "a", 10.0, 9) == 4
    assert admitted(guard, "a", 10.4, 9) == 0
    assert admitted(guard, "a", 11.5, 9) == 3
    assert admitted(guard, "a", 99.0, 9) == 4


def test_one_source_costs_another_nothing() -> None:
    guard = FloodGuard(LIMITS)
    admitted(guard, "a", 0.0, 100)
    assert admitted(guard, "b", 0.0, 9) == 4


def test_refusals_are_rarer_than_what_is_dropped() -> None:
    """The first request over the limit is refused with a Retry-After, later ones only once in two seconds."""
    guard = FloodGuard(LIMITS)
    admitted(guard, "a", 0.0, 4)
    at_once = [guard.judge("a", 0.0) for _ in range(5)]
    assert at_once == [Judgement.REFUSED] + [Judgement.DROPPED] * 4
    later = [guard.judge("a", 4.0 + n / 1000) for n in range(20)]
    assert later.count(Judgement.REFUSED) == 1


def test_the_table_is_bounded_and_those_it_has_no_place_for_share_one_bucket() -> None:
    """Sources are easily forged: a thousand of them get no more than one."""
    guard = FloodGuard(LIMITS)
    for source in "abc":
        admitted(guard, source, 0.0, 5)
    assert sum(admitted(guard, f"forged {n}", 0.0, 1) for n in range(1000)) == 4
    assert len(guard) == 3
    assert admitted(guard, "a", 1.0, 9) == 2


def test_the_place_of_a_source_that_was_silent_is_given_away() -> None:
    guard = FloodGuard(LIMITS)
    for source in "abc":
        guard.judge(source, 0.0)
    admitted(guard, "a", 50.0, 9)
    assert admitted(guard, "d", 50.0, 9) == 4
    assert admitted(guard, "e", 50.0, 9) == 4
    assert admitted(guard, "a", 50.0, 9) == 0
    assert len(guard) == 3


@given(steps=st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0.0, 2.0)), max_size=200))
def test_no_source_ever_gets_more_than_burst_and_rate(steps: list[tuple[str, float]]) -> None:
    guard = FloodGuard(LIMITS)
    now, got = 0.0, dict.fromkeys("abcde", 0)
    for source, pause_s in steps:
        now += pause_s
        got[source] += guard.judge(source, now) is Judgement.ADMITTED
        # Once a source shares a bucket with others it may then get one of its own: at most two bursts.
        assert got[source] <= 2 * LIMITS.burst_requests + 2 * LIMITS.requests_per_s * now + 1e-6
    assert len(guard) <= LIMITS.sources_max


def flooded(**changes: Any) -> World:
    return World(flood=FloodLimits(requests_per_s=1.0, burst_requests=5.0, **changes))


def test_a_flooding_source_is_refused_once_and_then_ignored() -> None:
    """RFC 3261 21.5.4; the refusal is no larger than the request; each request is counted."""
    world = flooded()
    eve = Phone(world, "alice", ("10.6.6.6", 1))
    for _ in range(50):
        eve.send(eve.request("OPTIONS", "sip:example.org"))
    refused = [message for message in eve.take() if isinstance(message, Response) and message.status == 503]
    assert [message.header("Retry-After") for message in refused] == ["5"]
    assert world.server.drops["flood"] == 45
    assert Phone(world, "alice", ("10.0.0.1", 1)).register().status == 200
    world.advance(10.0)
    assert eve.ask("OPTIONS", "sip:example.org") == 200


def test_other_ports_of_a_source_are_the_same_source() -> None:
    world = flooded()
    for port in range(1, 51):
        phone = Phone(world, "alice", ("10.6.6.6", port))
        phone.send(phone.request("OPTIONS", "sip:example.org"))
    assert world.server.drops["flood"] == 45


def test_answers_are_not_counted_as_requests() -> None:
    """A callee may answer as often as he is called."""
    world = flooded()
    bob = Phone(world, "bob", ("10.0.0.2", 1))
    assert bob.register().status == 200
    for n in range(20):
        caller = Phone(world, "alice", (f"10.0.1.{n}", 1))
        caller.send(caller.request("MESSAGE", BOB))
        bob.send(make_response(bob.taken_request(), 200))
        assert caller.statuses() == [200]


def test_noise_is_counted_and_never_answered() -> None:
    world = flooded()
    source: Address = ("10.6.6.6", 1)
    for data in (b"", b"\r\n\r\n", b"\x00" * 50) * 10:
        world.send(source, data)
    assert world.bytes_at(source) == []
    assert world.server.drops["flood"] == 25


def test_a_stream_is_judged_by_its_requests() -> None:
    """However they are cut into pieces; the refusal comes on the stream."""
    world = World(flood=FloodLimits(requests_per_s=1.0, burst_requests=3.0), streams={"TCP": ("10.0.0.9", 5060)})
    source: Address = ("10.6.6.6", 1)
    phone = Phone(world, "alice", source)
    requests = [phone.request("OPTIONS", "sip:example.org") for _ in range(6)]
    over_tcp = [r.replacing("Via", str(r.via).replace("UDP", "TCP")) for r in requests]
    stream = b"".join(encode_message(request) for request in over_tcp)
    answers = []
    for start in range(0, len(stream), 40):
        piece = StreamReceived("sip", 1, source, stream[start : start + 40], transport="TCP")
        for output in world.server.step([piece], world.now):
            if isinstance(output, SendOnStream):
                message = parse_message(output.data)
                assert isinstance(message, Response)
                answers.append(message.status)
    assert answers == [200, 200, 200, 503]
    assert world.server.drops["flood"] == 3


def test_a_large_request_takes_as_many_tokens_as_it_is_larger_than_a_usual_one() -> None:
    guard = FloodGuard(FloodLimits(requests_per_s=1.0, burst_requests=10.0))
    at_once = [guard.judge("a", 0.0, 4 * REQUEST_BYTES) for _ in range(4)]
    assert at_once.count(Judgement.ADMITTED) == 2
    assert guard.judge("a", 1.9, 4 * REQUEST_BYTES) is not Judgement.ADMITTED
    assert guard.judge("a", 2.1, 4 * REQUEST_BYTES) is Judgement.ADMITTED
    assert guard.judge("b", 0.0, 1_000 * REQUEST_BYTES) is Judgement.ADMITTED, "a full bucket admits anything"
    assert guard.judge("b", 1.0, 1) is Judgement.ADMITTED
    assert guard.judge("b", 1.0, 1) is not Judgement.ADMITTED


def test_a_flood_of_large_requests_is_counted_by_its_bytes() -> None:
    world = flooded()
    phone = Phone(world, "alice", ("10.6.6.6", 1))
    for _ in range(6):
        request = phone.request("OPTIONS", "sip:example.org")
        large = msgspec.structs.replace(request, headers=(*request.headers, ("Subject", "x" * 2 * REQUEST_BYTES)))
        world.send(("10.6.6.6", 1), encode_message(large))
    assert world.server.drops["flood"] == 4


def strangers_admitted(guard: FloodGuard, source: str, now: float, count: int) -> int:
    judged = [guard.judge(source, now, known=False) for _ in range(count)]
    return judged.count(Judgement.ADMITTED)


OF_STRANGERS = FloodLimits(
    stranger_requests_per_s=10.0,
    stranger_burst_requests=40.0,
    strangers_requests_per_s=20.0,
    strangers_burst_requests=100.0,
)


def test_a_stranger_has_less_than_a_source_of_users() -> None:
    guard = FloodGuard(OF_STRANGERS)
    assert strangers_admitted(guard, "a", 0.0, 3_000) == 40
    assert admitted(guard, "b", 0.0, 3_000) == 2_000


def test_a_crowd_of_strangers_costs_no_more_than_all_of_them_may() -> None:
    guard = FloodGuard(OF_STRANGERS)
    assert sum(strangers_admitted(guard, f"10.0.{n // 250}.{n % 250}", 0.0, 1) for n in range(1_000)) == 100
    assert admitted(guard, "198.51.100.1", 0.0, 10) == 10
    assert sum(each.count for each in guard.take_limited(0.0) + guard.take_limited(2.0)) == 900


def test_strangers_who_ask_much_leave_room_for_a_newcomer() -> None:
    guard = FloodGuard(OF_STRANGERS)
    for source in "abcd":
        strangers_admitted(guard, source, 0.0, 1_000)
    assert strangers_admitted(guard, "newcomer", 0.0, 4) == 4


def test_a_user_is_no_stranger_after_registering() -> None:
    world = World(flood=FloodLimits(stranger_requests_per_s=1.0, stranger_burst_requests=2.0))
    alice = Phone(world, "alice", ("198.51.100.1", 5060))
    assert alice.register().status == 200
    assert [alice.register().status for _ in range(20)] == [200] * 20


def test_stored_bindings_keep_their_sources_known_after_a_restart() -> None:
    limits = FloodLimits(stranger_requests_per_s=1.0, stranger_burst_requests=2.0)
    world = World(flood=limits)
    alice = Phone(world, "alice", ("198.51.100.1", 5060))
    assert alice.register().status == 200
    after = World(flood=limits)
    after.perform(after.server.restore(world.server.location.snapshot(), after.now))
    again = Phone(after, "alice", ("198.51.100.1", 5060))
    again.cseq = alice.cseq
    assert [again.register().status for _ in range(20)] == [200] * 20


def test_a_crowd_that_goes_on_leaves_room_for_a_newcomer() -> None:
    """A thousand sources, two requests a second each: the first seconds are theirs, then they are modest no more."""
    guard = FloodGuard()
    for second in range(10):
        for number in range(1_000):
            strangers_admitted(guard, f"10.1.{number // 250}.{number % 250}", float(second), 2)
    assert strangers_admitted(guard, "newcomer", 9.0, 4) == 4
