"""Strangers, forged addresses and floods at the port of the original ECI (SPEC A-09, C-20)."""

from __future__ import annotations

import msgspec
import pytest

from tests.client.eci_town import SUBJECT, EciTown, Pager
from wanderbus import protocol
from wanderbus.access.baseline import ECI_SOCKET, Baseline
from wanderbus.broker.messages import LinkOpened
from wanderbus.event import Event
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.protocol.eci_address import VALID_S, AddressChallenges
from wanderbus.refusals import Limited
from wanderbus.simulation.server import ECI_ADDRESS

VICTIM: Address = ("10.66.0.1", 6666)
KEY = bytes(32)


def attach(epoch: int = 1) -> bytes:
    return protocol.encode(protocol.Attach(epoch, "default", None, keep=True))


def give(baseline: Baseline, address: Address, data: bytes, now: float = 0.0) -> tuple[list[Input], list[Output]]:
    """Let a datagram arrive; return the inputs for the broker, and the outputs."""
    results = baseline.step([DatagramReceived(ECI_SOCKET, address, data)], now)
    return [each for each in results if isinstance(each, Input)], [each for each in results if isinstance(each, Output)]


def challenge_of(outputs: list[Output]) -> bytes:
    (challenge,) = [each.data for each in outputs if isinstance(each, SendDatagram)]
    return challenge


def proved(baseline: Baseline, address: Address, epoch: int = 1, now: float = 0.0) -> tuple[list[Input], list[Output]]:
    """Attach from ``address`` with the proof of receiving its datagrams."""
    challenge = challenge_of(give(baseline, address, attach(epoch), now)[1])
    return give(baseline, address, challenge + attach(epoch), now)


def test_a_forged_source_address_has_nothing_sent_to_its_owner_but_less_than_was_sent() -> None:
    town = EciTown()
    seller = Pager(town).connect()
    forged = [
        attach(),
        protocol.encode(protocol.Subscribe(1, SUBJECT, "", None, (), False)),
        *(protocol.encode(protocol.Publish(n, Event(SUBJECT, {"N": n}))) for n in range(1, 10)),
    ]
    for data in forged:
        town.network.carry(VICTIM, ECI_ADDRESS, data, 0.0)
    town.run(1.0)
    seller.publish(*range(100))
    town.run(1.0)
    received = town.to(VICTIM)
    assert sum(map(len, received)) < len(attach())
    assert len(received) == 1
    assert len(town.baseline._identities) == 1


def test_nothing_is_kept_of_an_address_until_it_has_proved_itself() -> None:
    baseline = Baseline(key=KEY)
    for port in range(1, 400):
        assert give(baseline, ("10.66.0.1", port), attach())[0] == []
    assert (baseline._identities, baseline._addresses) == ({}, {})


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xc1" + bytes(8), b"\xc1" + bytes(8) + attach(), bytes(60_000)])
def test_a_made_up_challenge_attaches_nobody_and_has_no_answer(data: bytes) -> None:
    baseline = Baseline(key=KEY)
    assert give(baseline, VICTIM, data) == ([], [])
    assert baseline.dropped == 1


def test_no_answer_to_an_attachment_is_longer_than_it() -> None:
    baseline = Baseline(key=KEY)
    shortest = msgspec.msgpack.encode([1, 1, "", None, True])  # without the fields that have a default
    assert len(shortest) < 9
    assert give(baseline, VICTIM, shortest) == ([], [])
    assert len(challenge_of(give(baseline, VICTIM, attach())[1])) < len(attach())


def test_a_challenge_is_of_one_address_and_of_its_time() -> None:
    baseline, other = Baseline(key=KEY), ("10.66.0.2", 6666)
    challenge = challenge_of(give(baseline, VICTIM, attach())[1])
    assert give(baseline, other, challenge + attach())[0] == []
    assert give(baseline, (VICTIM[0], 6667), challenge + attach())[0] == []
    assert give(baseline, VICTIM, challenge + attach(), now=2 * VALID_S)[0] == []
    opened, _ = give(baseline, VICTIM, challenge + attach(), now=2 * VALID_S - 0.1)
    assert [type(each) for each in opened][:1] == [LinkOpened]


def test_challenges_of_another_key_are_worth_nothing() -> None:
    one, other = AddressChallenges(KEY), AddressChallenges(b"1" * 32)
    challenge = one.make(VICTIM, attach(), 0.0)
    assert challenge is not None
    assert one.proved(VICTIM, challenge + attach(), 0.0) == attach()
    assert other.proved(VICTIM, challenge + attach(), 0.0) is None


def test_a_forged_source_cannot_restart_an_attached_address() -> None:
    """An attachment with another epoch may discard all subscriptions."""
    town = EciTown()
    buyer, seller = Pager(town, "10.2.0.1").connect(), Pager(town).connect()
    buyer.subscribe()
    again = protocol.encode(protocol.Attach(9, "default", None, keep=False))
    town.network.carry(buyer.address, ECI_ADDRESS, again, 0.0)
    town.run(0.2)
    seller.publish(1)
    town.run(0.2)
    assert buyer.received == [1]


def test_one_host_does_not_take_every_place() -> None:
    baseline = Baseline(BaselineConfig(identities_max=10, source_identities_max=4), key=KEY)
    for port in range(1, 10):
        proved(baseline, ("2001:db8::1", port))
        proved(baseline, (f"2001:db8::{port}:2", 1))
    assert len(baseline._identities) == 4, "a /64 is one host"
    opened, _ = proved(baseline, ("10.1.0.1", 1))
    assert opened
    _, outputs = proved(baseline, ("2001:db8::1", 99), now=2.0)
    (refusal,) = [protocol.decode_from_broker(each.data) for each in outputs if isinstance(each, SendDatagram)]
    assert isinstance(refusal, protocol.RequestRefused)
    assert refusal.limit == "source_identities_max"
    outputs += give(baseline, VICTIM, attach(), now=4.0)[1]
    limited = {(each.limit, each.party) for each in outputs if isinstance(each, Limited)}
    assert ("eci.source_identities_max", "2001:db8::/64") in limited


def test_places_of_a_host_come_back_when_its_addresses_leave() -> None:
    baseline = Baseline(BaselineConfig(source_identities_max=1), key=KEY)
    for port in range(1, 5):
        opened, _ = proved(baseline, ("10.1.0.1", port))
        assert opened
        give(baseline, ("10.1.0.1", port), protocol.encode(protocol.Leave(1)))
    assert baseline._of_source == {}


def test_many_agents_of_the_own_host_are_no_bound() -> None:
    baseline = Baseline(BaselineConfig(source_identities_max=1), key=KEY, flood=FloodLimits(stranger_burst_requests=1))
    for port in range(1, 50):
        assert proved(baseline, ("127.0.0.1", port))[0]


def test_a_flood_of_strangers_is_dropped_unread_and_shown_and_who_is_attached_is_read_all_the_same() -> None:
    baseline = Baseline(key=KEY, flood=FloodLimits(stranger_requests_per_s=10, stranger_burst_requests=20))
    buyer = (VICTIM[0], 1)
    proved(baseline, buyer)
    outputs = [output for _ in range(100) for output in give(baseline, VICTIM, attach())[1]]
    assert sum(isinstance(each, SendDatagram) for each in outputs) == 18
    limited = [each for each in outputs + give(baseline, VICTIM, b"", now=5.0)[1] if isinstance(each, Limited)]
    assert {(each.limit, each.party) for each in limited} == {("flood.stranger_requests_per_s", VICTIM[0])}
    assert sum(each.count for each in limited) == 82
    assert "ECI" in limited[0].reason
    query = protocol.encode(protocol.Query(1))
    assert len(give(baseline, buyer, query)[0]) == 1


def test_an_attached_address_does_not_begin_new_lives_without_end() -> None:
    """Each would be a new link of the broker, which no turn counts."""
    baseline = Baseline(key=KEY, flood=FloodLimits(stranger_requests_per_s=10, stranger_burst_requests=20))
    proved(baseline, VICTIM)
    challenge = challenge_of(give(baseline, VICTIM, attach(2))[1])
    lives = sum(bool(give(baseline, VICTIM, challenge + attach(epoch))[0]) for epoch in range(3, 103))
    assert lives <= 20
