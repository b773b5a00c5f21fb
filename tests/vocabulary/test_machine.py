"""Machines within machines: their timers are wrapped with the name of the machine (DESIGN 2.1)."""

from __future__ import annotations

from wanderbus.machine import CancelTimer, SendDatagram, SetTimer, scoped


def test_timers_get_the_scope_and_the_rest_passes() -> None:
    send = SendDatagram("sip", ("10.0.0.1", 5060), b"x")
    assert scoped("data", [SetTimer(7, 1.5), send, CancelTimer(("a", 1))]) == [
        SetTimer(("data", 7), 1.5),
        send,
        CancelTimer(("data", ("a", 1))),
    ]
