"""Machines within machines: timers are wrapped on the way out and unwrapped on the way in (DESIGN 2.1)."""

from __future__ import annotations

import pytest

from wanderbus.machine import (
    CancelTimer,
    ClockRead,
    DatagramReceived,
    SendDatagram,
    SetTimer,
    TimerFired,
    scoped,
    unscoped,
)


def test_timers_get_the_scope_and_the_rest_passes() -> None:
    send = SendDatagram("sip", ("10.0.0.1", 5060), b"x")
    assert scoped("data", [SetTimer(7, 1.5), send, CancelTimer(("a", 1))]) == [
        SetTimer(("data", 7), 1.5),
        send,
        CancelTimer(("data", ("a", 1))),
    ]


@pytest.mark.parametrize("key", [7, "heal", ("grace", "sip:alice@example.org", "phone")])
def test_a_timer_comes_back_as_it_was_asked_for_through_any_number_of_scopes(key: object) -> None:
    (inner,) = scoped("inner", [SetTimer(key, 2.0)])
    (outer,) = scoped("outer", [inner])
    assert outer.key == ("outer", ("inner", key))
    assert unscoped(unscoped(TimerFired(outer.key))) == TimerFired(key)


def test_other_inputs_have_no_scope() -> None:
    for given in (ClockRead(5), DatagramReceived("sip", ("10.0.0.1", 5060), b"x")):
        assert unscoped(given) is given
