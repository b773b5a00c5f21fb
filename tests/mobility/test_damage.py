"""No input from outside makes a user agent raise an exception (DESIGN 2, SPEC C-15)."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.mobility.world import SERVER, Talk, World, established, media_at
from wanderbus.machine import DatagramReceived, TimerFired
from wanderbus.mobility.messages import UpdateSession


def damaging(seed: int, part: float) -> Callable[[bytes], bytes]:
    """Return a function that changes some bytes of a ``part`` of the datagrams."""
    source = random.Random(seed)
    pieces = (
        b"",
        b";",
        b"=",
        b'"',
        b"<",
        b">",
        b"\r\n",
        b"99999999999",
        b"0",
        b"-1",
        b"\xff",
        b"sip:",
        b"10.0.9.9",
        b",",
    )

    def damage(data: bytes) -> bytes:
        if source.random() > part:
            return data
        at = source.randrange(len(data))
        return data[:at] + source.choice(pieces) + data[at + source.randrange(4) :]

    return damage


def test_damaged_datagrams_never_raise() -> None:
    for seed in range(50):
        world = World(seed, loss=0.1)
        world.damages = damaging(seed, 0.5)
        timed = {"session_expires_s": 90 + seed % 2, "takes_offerless": True, "any_media": seed % 3 == 0}
        broker = world.phone("broker", "10.0.1.1", authenticates=seed % 2 == 0, properties=timed)
        alice = world.phone("alice", "10.0.2.1", properties=timed)
        world.run(5.0)
        alice.call("broker")
        world.run(5.0)
        alice.move("10.0.3.1")
        broker.move("10.0.4.1")
        world.run(20.0)
        for phone in (alice, broker):
            phone.give(*(UpdateSession(id, media_at(phone.address), "UPDATE") for id in phone.agent.sessions))
        world.run(50.0)


@given(st.binary(max_size=200))
def test_noise_is_dropped(data: bytes) -> None:
    _, alice, broker = _TALK
    for phone in (alice, broker):
        phone.agent.step([DatagramReceived("sip", SERVER, data)], _TALK[0].now)


@given(st.integers(0, 10_000), st.integers(0, 2**32))
def test_any_message_may_arrive_again_damaged_at_any_time(which: int, seed: int) -> None:
    world, alice, broker = _TALK
    data = damaging(seed, 1.0)(world.trace[which % len(world.trace)].data)
    for phone in (alice, broker):
        phone.agent.step([DatagramReceived("sip", SERVER, data)], world.now)


@given(st.recursive(st.text() | st.integers(), lambda inner: st.tuples(inner, inner)))
def test_timers_of_nobody_are_ignored(key: object) -> None:
    _, alice, _ = _TALK
    assert alice.agent.step([TimerFired(key)], 0.0) == []
    assert alice.agent.step([TimerFired(("sessions", ("gone", "invite")))], 0.0) == []


def _moved() -> Talk:
    world, alice, broker = established()
    alice.move("10.0.3.1")
    world.run(1.0)
    return world, alice, broker


_TALK = _moved()
