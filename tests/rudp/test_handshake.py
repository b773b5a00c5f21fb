"""Handshake without signalling, between holders of a shared secret; strangers cannot make it costly."""

from __future__ import annotations

import heapq
import itertools
import math
import struct
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rudp.conftest import SeededRandom
from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.frames import PING_FRAME, SEALED, encode_header
from wanderbus.rudp.handshake import HALF_OPEN_MAX, HALF_OPEN_S, DirectEndpoint
from wanderbus.rudp.handshake_messages import HELLO, OPENING_BYTES, WELCOME, OpeningSecret, decode_opening
from wanderbus.rudp.keys import KeyPair
from wanderbus.rudp.openings import Dial, Opened, OpenFailed
from wanderbus.rudp.sealing import Sealer
from wanderbus.transport import CloseConnection, ConnectionReset, MessageReceived, SendMessage

SECRET = b"a secret of two sides"
CONFIG = RudpConfig()
DIALLER: Address = ("192.0.2.1", 1000)
ACCEPTOR: Address = ("192.0.2.2", 2000)
STRANGER: Address = ("203.0.113.9", 666)


class Side:
    """A machine with its timers and reports."""

    def __init__(self, address: Address, seed: int, **options: object) -> None:
        given: dict[str, object] = {"secret": SECRET, **options}
        self.machine = DirectEndpoint(SeededRandom(seed), CONFIG, **given)  # type: ignore[arg-type]
        self.address = address
        self.timers: dict[object, float] = {}
        self.reports: list[Output] = []

    def step(self, now: float, *inputs: Input) -> list[SendDatagram]:
        sent: list[SendDatagram] = []
        for output in self.machine.step(inputs, now):
            match output:
                case SendDatagram():
                    sent.append(output)
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
                case _:
                    self.reports.append(output)
        return sent

    def dial(self, now: float = 0.0) -> tuple[int, bytes]:
        """Dial the acceptor; return our id and the HELLO."""
        local_id = self.machine.allocate()
        (hello,) = self.step(now, Dial(local_id, ACCEPTOR))
        assert hello.destination == ACCEPTOR
        return local_id, hello.data

    def take(self, data: bytes, source: Address = DIALLER, now: float = 0.0) -> list[SendDatagram]:
        return self.step(now, DatagramReceived("data", source, data))

    @property
    def due(self) -> float:
        return min(self.timers.values(), default=math.inf)

    def fire(self) -> tuple[float, list[SendDatagram]]:
        """Fire the timer that is due first."""
        key = min(self.timers, key=lambda key: self.timers[key])
        at = self.timers.pop(key)
        return at, self.step(at, TimerFired(key))

    @property
    def opened(self) -> list[int]:
        return [report.local_id for report in self.reports if isinstance(report, Opened)]

    @property
    def received(self) -> list[bytes]:
        return [report.payload for report in self.reports if isinstance(report, MessageReceived)]


class Town:
    """A dialling and an accepting side."""

    def __init__(self, seed: int = 0, *, connections_max: int = 8, **options: object) -> None:
        self.dialler = Side(DIALLER, 2 * seed + 1, **options)
        self.acceptor = Side(ACCEPTOR, 2 * seed + 2, connections_max=connections_max, **options)

    def settle(self, datagrams: list[SendDatagram], now: float = 0.0) -> None:
        """Deliver the datagrams, and all that follow, without loss or delay."""
        sides = {DIALLER: self.dialler, ACCEPTOR: self.acceptor}
        queue = list(datagrams)
        while queue:
            datagram = queue.pop(0)
            source = DIALLER if datagram.destination == ACCEPTOR else ACCEPTOR
            queue += sides[datagram.destination].take(datagram.data, source, now)

    def open(self, now: float = 0.0) -> tuple[int, int]:
        """Open a connection; return the ids on either side."""
        local_id, hello = self.dialler.dial(now)
        self.settle([SendDatagram("data", ACCEPTOR, hello)], now)
        assert self.dialler.opened[-1] == local_id
        return local_id, self.acceptor.opened[-1]

    def welcomed(self, now: float = 0.0) -> tuple[int, bytes, list[SendDatagram]]:
        """Dial, and give the dialler its WELCOME: return its id, the HELLO and the first packets."""
        local_id, hello = self.dialler.dial(now)
        (welcome,) = self.acceptor.take(hello, now=now)
        return local_id, hello, self.dialler.take(welcome.data, ACCEPTOR, now)


@pytest.fixture(params=[True, False], ids=["sealed", "plain"])
def town(request: pytest.FixtureRequest) -> Town:
    return Town(sealed=request.param)


def test_a_connection_opens_and_carries_both_ways(town: Town) -> None:
    here, there = town.open()
    assert Opened(here, ACCEPTOR) in town.dialler.reports
    assert Opened(there, DIALLER) in town.acceptor.reports
    town.settle(town.dialler.step(1.0, SendMessage(here, b"out")), 1.0)
    town.settle(town.acceptor.step(1.0, SendMessage(there, b"back")), 1.0)
    assert (town.acceptor.received, town.dialler.received) == ([b"out"], [b"back"])


def test_it_opens_before_its_first_message_arrives() -> None:
    """Also if the first packet that arrives carries a message already."""
    town = Town()
    here, _, _ = town.welcomed()
    town.settle(town.dialler.step(0.0, SendMessage(here, b"first")))
    assert type(town.acceptor.reports[0]) is Opened
    assert town.acceptor.received == [b"first"]


def test_nothing_readable_goes_over_the_line() -> None:
    town = Town()
    here, _ = town.open()
    (packet,) = town.dialler.step(1.0, SendMessage(here, b"between us alone"))
    assert b"between us" not in packet.data
    assert SECRET not in packet.data


def test_answers_are_no_longer_than_what_they_answer(town: Town) -> None:
    _, hello = town.dialler.dial()
    assert len(hello) == OPENING_BYTES
    for _ in range(3):
        (welcome,) = town.acceptor.take(hello, STRANGER)
        assert (welcome.destination, len(welcome.data)) == (STRANGER, OPENING_BYTES)
    assert [key for key in town.acceptor.timers if isinstance(key, int)] == [], "nothing is sent unasked"


def test_a_hello_is_repeated_with_back_off_and_given_up() -> None:
    side = Side(DIALLER, 1)
    local_id, hello = side.dial()
    times = [0.0]
    while side.timers:
        at, sent = side.fire()
        if sent:
            assert [datagram.data for datagram in sent] == [hello]
            times.append(at)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0]
    assert len(times) == 1 + CONFIG.retries_max
    assert side.reports == [OpenFailed(local_id, refused=False)]


def test_a_closed_dial_sends_nothing() -> None:
    side = Side(DIALLER, 1)
    local_id, _ = side.dial()
    assert side.step(0.1, CloseConnection(local_id)) == []
    assert (side.timers, side.reports) == ({}, [])


def test_a_repeated_hello_gets_the_same_welcome(town: Town) -> None:
    _, hello = town.dialler.dial()
    assert town.acceptor.take(hello) == town.acceptor.take(hello)


def test_a_late_welcome_is_nothing(town: Town) -> None:
    _, hello = town.dialler.dial()
    (welcome,) = town.acceptor.take(hello)
    town.settle([welcome])
    assert town.dialler.take(welcome.data, ACCEPTOR) == []
    assert len(town.dialler.opened) == len(town.acceptor.opened) == 1
    assert town.dialler.machine.openings.stale == 1


def test_a_peer_without_the_secret_gets_no_answer() -> None:
    _, hello = Side(DIALLER, 1, secret=b"another secret").dial()
    acceptor = Side(ACCEPTOR, 2, connections_max=8)
    assert acceptor.take(hello) == []
    assert (acceptor.machine.openings.forged, acceptor.timers) == (1, {})


def test_an_answer_without_the_secret_opens_nothing() -> None:
    dialler = Side(DIALLER, 1)
    local_id, hello = dialler.dial()
    fake = OpeningSecret(b"another secret", sealed=True)
    assert decode_opening(hello).source_id == local_id
    assert dialler.take(fake.welcome(decode_opening(hello), 7, KeyPair(bytes(32)).public), ACCEPTOR) == []
    assert (dialler.machine.openings.forged, dialler.reports) == (1, [])


@pytest.mark.parametrize("sealed", [True, False])
def test_both_sides_have_to_be_of_one_mode(sealed: bool) -> None:
    """Not even a peer that knows the secret can turn sealing off."""
    _, hello = Side(DIALLER, 1, sealed=sealed).dial()
    acceptor = Side(ACCEPTOR, 2, sealed=not sealed, connections_max=8)
    assert acceptor.take(hello) == []
    assert acceptor.machine.openings.forged == 1


def test_sealing_takes_a_secret() -> None:
    with pytest.raises(ValueError, match="secret"):
        DirectEndpoint(SeededRandom(0), CONFIG, secret=None)
    Town(secret=None, sealed=False).open()


def test_every_byte_of_a_hello_and_a_welcome_counts(town: Town) -> None:
    local_id, hello = town.dialler.dial()
    for place in range(OPENING_BYTES):
        assert town.acceptor.take(flipped(hello, place)) == []
    (welcome,) = town.acceptor.take(hello)
    for place in range(OPENING_BYTES):
        town.dialler.take(flipped(welcome.data, place), ACCEPTOR)
    assert town.dialler.opened == []
    town.settle([welcome])
    assert town.dialler.opened == [local_id]


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]


def test_a_welcome_is_for_one_hello() -> None:
    """The WELCOME of an earlier dial, replayed to a new one, is rejected as forged."""
    town = Town()
    first, hello = town.dialler.dial()
    (welcome,) = town.acceptor.take(hello)
    second, _ = town.dialler.dial()
    replayed = second.to_bytes(8, "big") + welcome.data[8:]
    town.dialler.take(replayed, ACCEPTOR)
    assert town.dialler.machine.openings.forged == 1
    town.settle([welcome])
    assert town.dialler.opened == [first]


def test_a_key_that_cannot_be_used_opens_nothing() -> None:
    """The peer knows the secret and sends a weak key."""
    hello = OpeningSecret(SECRET, sealed=True).hello(5, bytes(32))
    acceptor = Side(ACCEPTOR, 2, connections_max=8)
    assert acceptor.take(hello) == []
    assert (acceptor.machine.openings.forged, acceptor.timers) == (1, {})


def test_one_connection_too_many_is_refused_by_name() -> None:
    town = Town(connections_max=1)
    _, there = town.open()
    local_id, hello = town.dialler.dial()
    (refusal,) = town.acceptor.take(hello)
    assert len(refusal.data) == OPENING_BYTES
    assert town.dialler.take(refusal.data, ACCEPTOR) == []
    assert town.dialler.reports[-1] == OpenFailed(local_id, refused=True)
    assert town.acceptor.machine.openings.refused == 1
    town.acceptor.step(1.0, CloseConnection(there))
    town.open(1.0)


def test_a_side_that_accepts_none_does_not_answer() -> None:
    _, hello = Side(DIALLER, 1).dial()
    assert Side(ACCEPTOR, 2).take(hello) == []


def test_our_own_hello_out_of_a_mirror_is_not_answered() -> None:
    side = Side(DIALLER, 1, connections_max=8)
    _, hello = side.dial()
    assert side.take(hello, ACCEPTOR) == []
    assert side.machine.openings.stale == 1


def test_half_open_connections_are_few_and_expire() -> None:
    town = Town(connections_max=10 * HALF_OPEN_MAX)
    hellos = [town.dialler.dial()[1] for _ in range(HALF_OPEN_MAX + 5)]
    for hello in hellos:
        assert len(town.acceptor.take(hello)) == 1
    assert town.acceptor.machine.openings.expired == 5
    at, _ = town.acceptor.fire()
    assert at == HALF_OPEN_S
    assert town.acceptor.machine.openings.expired == HALF_OPEN_MAX + 5
    assert town.acceptor.timers == {}


def test_each_expires_in_its_own_time() -> None:
    town = Town()
    for now in (0.0, 4.0):
        town.acceptor.take(town.dialler.dial(now)[1], now=now)
    assert town.acceptor.fire()[0] == HALF_OPEN_S
    assert town.acceptor.machine.openings.expired == 1
    assert town.acceptor.fire()[0] == HALF_OPEN_S + 4.0
    assert town.acceptor.machine.openings.expired == 2


def test_an_open_connection_does_not_expire() -> None:
    town = Town()
    town.open()
    town.acceptor.fire()
    assert town.acceptor.machine.openings.expired == 0


def test_half_open_ones_make_room_for_living_ones() -> None:
    """Recorded HELLOs, all repeated at once, do not keep a dialler out."""
    town = Town(connections_max=2)
    for _ in range(5):
        town.acceptor.take(town.dialler.dial()[1], STRANGER)
    town.open()
    town.open()
    assert len(town.acceptor.opened) == 2


def test_no_more_become_open_than_there_may_be() -> None:
    """However many of them were half open at once."""
    town = Town(connections_max=2)
    first_packets = [town.welcomed()[2] for _ in range(4)]
    for packets in first_packets:
        for packet in packets:
            town.acceptor.take(packet.data)
    assert len(town.acceptor.opened) == 2


@pytest.mark.parametrize("knows_it", [True, False])
def test_the_secret_is_in_the_keys_too(knows_it: bool) -> None:
    """An attacker with only the MAC's key cannot open a connection."""
    secret, keys = OpeningSecret(SECRET, sealed=True), KeyPair(bytes(range(32)))
    acceptor = Side(ACCEPTOR, 2, connections_max=8)
    (answer,) = acceptor.take(secret.hello(5, keys.public))
    welcome = decode_opening(answer.data)
    context = struct.pack("!QQ", 5, welcome.source_id)
    salt = secret.salt if knows_it else b""
    secrets = keys.secrets(welcome.public, salt=salt, context=context, first=True)
    header = encode_header(welcome.source_id, 5, SEALED, 0, 0, 0)
    acceptor.take(Sealer(secrets, 2**20).seal(header, 0, PING_FRAME))
    assert acceptor.opened == ([welcome.source_id] if knows_it else [])


def test_a_hello_of_a_living_connection_is_not_answered_again(town: Town) -> None:
    here, hello, first = town.welcomed()
    town.settle(first)
    assert town.acceptor.take(hello, STRANGER) == []
    assert town.acceptor.machine.openings.stale == 1
    town.settle(town.dialler.step(1.0, SendMessage(here, b"still here")), 1.0)
    assert town.acceptor.received == [b"still here"]


def test_a_recorded_hello_costs_a_half_open_connection_and_disturbs_nobody() -> None:
    town = Town()
    old, hello, first = town.welcomed()
    town.settle(first)
    (there,) = town.acceptor.opened
    town.acceptor.step(1.0, CloseConnection(there))
    here, _ = town.open(1.0)
    (welcome,) = town.acceptor.take(hello, STRANGER, 2.0)
    for packet in first:
        replayed = welcome.data[8:16] + packet.data[8:]
        assert town.acceptor.take(replayed, STRANGER, 2.0) == [], "sealed under keys of then"
    assert town.acceptor.machine.openings.forged == len(first)
    assert len(town.acceptor.opened) == 2
    town.settle(town.dialler.step(3.0, SendMessage(here, b"undisturbed")), 3.0)
    assert town.acceptor.received == [b"undisturbed"]
    assert old != here


def test_a_forged_first_packet_does_not_open(town: Town) -> None:
    _, _, first = town.welcomed()
    for packet in first:
        for place in (0, 8, 16) if not town.dialler.machine._sealed else range(len(packet.data)):
            town.acceptor.take(flipped(packet.data, place), STRANGER)
    assert town.acceptor.opened == []
    town.settle(first)
    assert len(town.acceptor.opened) == 1


def test_a_reset_connection_makes_room() -> None:
    town = Town(connections_max=1)
    here, there = town.open()
    town.dialler.step(1.0, CloseConnection(here))
    town.settle(town.acceptor.step(1.0, SendMessage(there, b"are you there?")), 1.0)
    assert ConnectionReset(there) in town.acceptor.reports
    town.open(2.0)


@pytest.mark.parametrize("seed", range(20))
def test_it_opens_over_a_line_that_loses_much(seed: int) -> None:
    """A third of all datagrams is lost, and each takes 20 ms: it opens on both sides, or the dialler reports a
    failure.
    """
    random = Random(seed)
    town = Town(seed)
    line: list[tuple[float, int, SendDatagram]] = []
    count = itertools.count()

    def carry(sent: list[SendDatagram], now: float) -> None:
        for datagram in sent:
            if random.random() > 1 / 3:
                heapq.heappush(line, (now + 0.02, next(count), datagram))

    local_id, hello = town.dialler.dial()
    carry([SendDatagram("data", ACCEPTOR, hello)], 0.0)
    while not town.acceptor.opened and OpenFailed(local_id, refused=False) not in town.dialler.reports:
        side = min((town.dialler, town.acceptor), key=lambda side: side.due)
        if line and line[0][0] <= side.due:
            now, _, datagram = heapq.heappop(line)
            source, to = (DIALLER, town.acceptor) if datagram.destination == ACCEPTOR else (ACCEPTOR, town.dialler)
            carry(to.take(datagram.data, source, now), now)
        else:
            now, sent = side.fire()
            carry(sent, now)
    assert bool(town.acceptor.opened) == bool(town.dialler.opened)


@settings(max_examples=300)
@given(
    data=st.one_of(
        st.binary(max_size=120),
        st.builds(
            lambda kind, body: struct.pack("!QQB", 0 if kind == HELLO else 1, 9, kind) + body,
            st.sampled_from([HELLO, WELCOME]),
            st.binary(max_size=70),
        ),
    )
)
def test_arbitrary_bytes_open_nothing_and_are_not_answered_at_length(data: bytes) -> None:
    acceptor = Side(ACCEPTOR, 2, connections_max=8)
    acceptor.take(Side(DIALLER, 1).dial()[1])
    for sent in acceptor.take(data):
        assert len(sent.data) <= len(data)
    assert acceptor.reports == []
