"""Tests of circuits that end at a server: one for each foreign domain (SPEC M-01; decision 0161)."""

from __future__ import annotations

import itertools

from wanderbus import protocol
from wanderbus.broker.messages import LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.federation.circuit_host import DEVICE, CircuitHost
from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened
from wanderbus.federation.circuits import CIRCUITS_MAX, circuit_numbers, domain_of_circuit

FIRST = 900


def test_a_circuit_of_another_gateway_ends_the_former_one() -> None:
    host = CircuitHost("alpha", ("beta", "gamma"), itertools.count(FIRST).__next__)
    host.take(1, CircuitOpened(5, "beta"))
    assert host.take_replaced() == []
    opened = host.take(2, CircuitOpened(5, "beta"))
    assert opened == [LinkOpened(FIRST + 1, "sip:beta@domains.alpha", DEVICE, is_server=True)]
    assert [(link, each.circuit) for link, each in host.take_replaced()] == [(1, 5)]
    assert host.take(1, CircuitMessage(5, b"late")) == ()
    assert host.take(2, CircuitMessage(5, b"new")) == [MessageArrived(FIRST + 1, b"new")]


def test_circuits_of_several_domains_stay() -> None:
    host = CircuitHost("alpha", ("beta", "gamma"), itertools.count(FIRST).__next__)
    host.take(1, CircuitOpened(5, "beta"))
    host.take(1, CircuitOpened(6, "gamma"))
    assert host.take_replaced() == []
    assert host.has(FIRST)
    assert host.has(FIRST + 1)


def test_a_circuit_that_was_closed_is_not_replaced() -> None:
    host = CircuitHost("alpha", ("beta", "gamma"), itertools.count(FIRST).__next__)
    host.take(1, CircuitOpened(5, "beta"))
    host.take(1, CircuitClosed(5, "the link is closed"))
    host.take(2, CircuitOpened(1, "beta"))
    assert host.take_replaced() == []


def test_a_circuit_of_a_domain_that_is_not_in_the_file_is_refused() -> None:
    host = CircuitHost("alpha", ("beta",), itertools.count(FIRST).__next__)
    assert host.take(1, CircuitOpened(5, "omega")) == ()
    [(link, closed)] = host.take_replaced()
    assert (link, closed.circuit) == (1, 5)
    assert not host.has(FIRST)


def test_a_domain_that_leaves_has_no_session_and_no_link() -> None:
    host = CircuitHost("alpha", ("beta",), itertools.count(FIRST).__next__)
    inputs = host.leave(["omega", "sigma"], 7)
    assert [each.link for each in inputs] == [FIRST] * 3 + [FIRST + 1] * 3
    attached = protocol.Attachment(1)
    assert host.left(SendOnLink(FIRST, protocol.encode(attached))) == []
    done = SendOnLink(FIRST, protocol.encode(protocol.Done(1, ())))
    assert host.left(done) == [LinkClosed(FIRST, "the domain has left")]
    assert host.left(done) == [], "once"
    assert host.left(LinkDropped(FIRST + 1, "")) == []


def test_numbers_of_circuits_name_their_domain_and_are_never_used_again() -> None:
    seen: set[int] = set()
    for generation, domains in enumerate((3, 2, 1, 5)):
        for place, new_circuit in enumerate(circuit_numbers(generation, domains)):
            for _ in range(10):
                number = new_circuit()
                assert domain_of_circuit(number, domains) == place
                assert 0 < number < (generation + 1) * CIRCUITS_MAX
                assert number not in seen
                seen.add(number)
    assert circuit_numbers(0, 0) == []
