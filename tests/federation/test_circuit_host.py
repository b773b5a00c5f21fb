"""Tests of circuits that end at a server: one for each foreign domain (SPEC M-01; decision 0161)."""

from __future__ import annotations

import itertools

from wanderbus.broker.messages import LinkOpened, MessageArrived
from wanderbus.federation.circuit_host import DEVICE, CircuitHost
from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened

FIRST = 900


def test_a_circuit_of_another_gateway_ends_the_former_one() -> None:
    host = CircuitHost("alpha", itertools.count(FIRST).__next__)
    host.take(1, CircuitOpened(5, "beta"))
    assert host.take_replaced() == []
    opened = host.take(2, CircuitOpened(5, "beta"))
    assert opened == [LinkOpened(FIRST + 1, "sip:beta@domains.alpha", DEVICE, is_server=True)]
    assert [(link, each.circuit) for link, each in host.take_replaced()] == [(1, 5)]
    assert host.take(1, CircuitMessage(5, b"late")) == ()
    assert host.take(2, CircuitMessage(5, b"new")) == [MessageArrived(FIRST + 1, b"new")]


def test_circuits_of_several_domains_stay() -> None:
    host = CircuitHost("alpha", itertools.count(FIRST).__next__)
    host.take(1, CircuitOpened(5, "beta"))
    host.take(1, CircuitOpened(6, "gamma"))
    assert host.take_replaced() == []
    assert host.has(FIRST)
    assert host.has(FIRST + 1)


def test_a_circuit_that_was_closed_is_not_replaced() -> None:
    host = CircuitHost("alpha", itertools.count(FIRST).__next__)
    host.take(1, CircuitOpened(5, "beta"))
    host.take(1, CircuitClosed(5, "the link is closed"))
    host.take(2, CircuitOpened(1, "beta"))
    assert host.take_replaced() == []
