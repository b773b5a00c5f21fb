"""Links between servers: opening, messages, strangers, replays, failures and restarts (SPEC J-12)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, pairwise

import msgspec
import pytest

from wanderbus.errors import ConfigurationError, LimitExceeded
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram
from wanderbus.peers.handshake import LinkKeys, is_handshake
from wanderbus.peers.link_parameters import CONFIRM_S, PENDING_S, RETRY_JITTER, RETRY_S_MIN, SERVER_LINK_CONFIG
from wanderbus.peers.links import ServerLinks
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    EndServerLinks,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
    ServerReachable,
)
from wanderbus.rudp.keys import KeyPair
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.world import SeededRandom, World

DOMAIN = "d.example"
SOCKET = "servers"
NOTICED_S = 5.6
"""Time in which an idle link is noticed as dead, with the round trip of the network."""


class Domain:
    """Servers in a simulated network, and a record of everything that they report and send."""

    def __init__(self, *names: str, keepalive_s: float = 1.0) -> None:
        self.world = World(1)
        self.network = Network(self.world, PathConditions(delay_min_s=0.005, delay_max_s=0.005))
        self.network.tap = self._sees
        self.keepalive_s = keepalive_s
        self.keys = {name: KeyPair(bytes([number]) * 32) for number, name in enumerate(names, 1)}
        self.addresses: dict[str, Address] = {name: (f"10.0.0.{n}", 5601) for n, name in enumerate(names, 1)}
        self.new_link = count(1).__next__
        self.nodes: dict[str, Node] = {}
        self.machines: dict[str, ServerLinks] = {}
        self.reports: list[tuple[float, str, Output]] = []
        self.health: list[tuple[float, str, Output]] = []
        """Reports about the reachability of others."""
        self.sent: list[tuple[float, str, str, bytes]] = []
        self.lost: Callable[[str, str, bytes], bool] = lambda source, destination, data: False
        for name in names:
            self.start(name)

    def start(self, name: str, **changed: object) -> ServerLinks:
        """Start a server without connections, with the keys of the one before."""
        servers = {each: (self.addresses[each], self.keys[each].public) for each in self.keys}
        options = {"keys": self.keys[name], "servers": servers, "domain": DOMAIN, **changed}
        machine = ServerLinks(
            name,
            random=SeededRandom(self.world),
            new_link=self.new_link,
            keepalive_s=self.keepalive_s,
            reset_key=self.keys[name].public,
            **options,  # type: ignore[arg-type]
        )
        self.machines[name] = machine
        self.nodes[name] = Node(
            name,
            machine,
            {SOCKET: self.addresses[name]},
            self.world,
            self.network,
            lambda output: self._report(name, output),
        )
        return machine

    def _report(self, name: str, output: Output) -> None:
        reports = self.health if isinstance(output, PeerUnreachable | ServerReachable) else self.reports
        reports.append((self.world.now, name, output))

    def kill(self, name: str) -> None:
        """Stop a server at once; its links count as closed."""
        self.nodes[name].kill()
        for number in self.links(name):
            self.reports.append((self.world.now, name, ServerLinkClosed(number, "", "killed")))

    def feed(self, name: str, *inputs: Input) -> None:
        self.nodes[name].feed(inputs)

    def run(self, seconds: float) -> None:
        until = self.world.now + seconds
        self.world.run(until)
        self.world.now = until

    def inject(self, data: bytes, destination: str, source: Address = ("203.0.113.6", 66)) -> Sequence[Output]:
        """Deliver a datagram at once; return the outputs."""
        outputs = self.machines[destination].step([DatagramReceived(SOCKET, source, data)], self.world.now)
        self.nodes[destination].perform(outputs)
        return outputs

    def links(self, name: str) -> dict[int, ServerLinkOpened]:
        """Return the open links of a server, by number."""
        found: dict[int, ServerLinkOpened] = {}
        for _, at, report in self.reports:
            if at == name and isinstance(report, ServerLinkOpened):
                found[report.link] = report
            elif at == name and isinstance(report, ServerLinkClosed):
                del found[report.link]
        return found

    def link(self, name: str, *, is_ours: bool) -> int:
        """Return the only open link of a server that is its own, or that is not."""
        (number,) = (number for number, link in self.links(name).items() if link.is_ours == is_ours)
        return number

    def received(self, name: str) -> list[tuple[int, bytes]]:
        reports = (report for _, at, report in self.reports if at == name)
        return [(each.link, each.payload) for each in reports if isinstance(each, ServerMessageReceived)]

    def handshakes(self, source: str | None = None) -> list[bytes]:
        """Return the offers and answers that a server, or anybody, has sent."""
        return [data for _, each, _, data in self.sent if is_handshake(data) and source in (None, each)]

    def _sees(self, source: Address, destination: Address, data: bytes) -> None:
        names = {address: name for name, address in self.addresses.items()}
        way = names[source], names.get(destination, "stranger")
        self.sent.append((self.world.now, *way, data))
        self.network.conditions.loss = float(self.lost(*way, data))


def connected(*ways: str, keepalive_s: float = 1.0) -> Domain:
    """Return a domain of a and b with links; ``ab`` is one that a opens."""
    domain = Domain("a", "b", keepalive_s=keepalive_s)
    for way in ways:
        domain.feed(way[0], ConnectServer(way[1]))
    domain.run(0.2)
    return domain


# Opening and messages ------------------------------------------------------------------------------------------------


def test_a_link_opens_on_both_sides_and_carries_messages_both_ways_in_order() -> None:
    domain = connected("ab")
    ours, theirs = domain.link("a", is_ours=True), domain.link("b", is_ours=False)
    assert ours != theirs
    payloads = [b"%d" % number * (number % 7 * 400) for number in range(200)]
    domain.feed("a", *(SendOnServerLink(ours, payload) for payload in payloads))
    domain.feed("b", *(SendOnServerLink(theirs, payload) for payload in payloads[::-1]))
    assert domain.machines["a"].unconfirmed_bytes(ours) > 0
    domain.run(2)
    assert domain.received("b") == [(theirs, payload) for payload in payloads]
    assert domain.received("a") == [(ours, payload) for payload in payloads[::-1]]
    assert domain.machines["a"].unconfirmed_bytes(ours) == 0


def test_each_server_has_a_link_of_its_own() -> None:
    domain = connected("ab", "ba")
    domain.feed("a", SendOnServerLink(domain.link("a", is_ours=True), b"ours"))
    domain.feed("a", SendOnServerLink(domain.link("a", is_ours=False), b"theirs"))
    domain.run(1)
    expected = [(domain.link("b", is_ours=False), b"ours"), (domain.link("b", is_ours=True), b"theirs")]
    assert sorted(domain.received("b")) == sorted(expected)


def test_an_acceptor_that_sends_at_once_is_heard_after_the_opening() -> None:
    """The ACK of the opener's first packet is lost, so the message is the first packet that comes from the acceptor."""
    domain = Domain("a", "b")
    domain.lost = lambda source, destination, data: len(domain.sent) == 4
    domain.feed("a", ConnectServer("b"))
    while not domain.links("b"):
        domain.run(0.001)
    domain.feed("b", SendOnServerLink(domain.link("b", is_ours=False), b"hello"))
    domain.run(1)
    reports = [report for _, at, report in domain.reports if at == "a"]
    link = domain.link("a", is_ours=True)
    assert reports == [ServerLinkOpened(link, "b", True), ServerMessageReceived(link, "b", b"hello")]


def test_an_offer_is_repeated_with_back_off_until_the_server_is_there() -> None:
    domain = Domain("a", "b")
    domain.kill("b")
    domain.feed("a", ConnectServer("b"), ConnectServer("b"))
    domain.run(60)
    times = [at for at, source, _, data in domain.sent if source == "a"]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for pause, wait_s in zip(pauses, (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0), strict=False):
        assert 0.75 * wait_s <= pause <= 1.25 * wait_s
    assert len(pauses) > 8
    assert len({round(pause / 5, 6) for pause in pauses[5:]}) > 1, "no jitter"
    assert len(set(domain.handshakes("a"))) == 1
    domain.start("b")
    domain.run(6.5)
    assert domain.link("a", is_ours=True)
    assert domain.link("b", is_ours=False)


def test_a_repeated_offer_gets_the_same_answer_before_and_after_the_link_is_open() -> None:
    domain = Domain("a", "b")
    domain.lost = lambda source, destination, data: source == "b"
    domain.feed("a", ConnectServer("b"))
    domain.run(2)
    assert len(domain.handshakes("b")) >= 3
    domain.lost = lambda source, destination, data: False
    domain.run(3)
    assert domain.link("b", is_ours=False)
    domain.inject(domain.handshakes("a")[0], "b")
    assert len(set(domain.handshakes("b"))) == 1
    assert domain.machines["b"].pending == 0


def test_an_opener_whose_first_packets_are_lost_makes_a_new_offer() -> None:
    domain = Domain("a", "b")
    domain.lost = lambda source, destination, data: source == "a" and not is_handshake(data)
    domain.feed("a", ConnectServer("b"))
    domain.run(3 * CONFIRM_S)
    assert domain.reports == []
    assert len(set(domain.handshakes("a"))) > 1
    assert domain.machines["b"].pending == 1
    domain.lost = lambda source, destination, data: False
    domain.run(6)
    assert domain.link("a", is_ours=True)
    assert domain.machines["b"].pending == 0


def test_reports_of_consumption_let_the_other_server_send_on() -> None:
    domain = connected("ab")
    ours, theirs = domain.link("a", is_ours=True), domain.link("b", is_ours=False)
    frames = SERVER_LINK_CONFIG.receive_window_frames
    domain.feed("a", *(SendOnServerLink(ours, b"x") for _ in range(3 * frames)))
    domain.run(20)
    assert len(domain.received("b")) == frames
    domain.feed("b", ConsumedOnServerLink(theirs, frames))
    domain.run(5)
    assert len(domain.received("b")) == 2 * frames


def test_a_payload_above_the_bound_is_refused_and_nothing_of_the_batch_is_done() -> None:
    domain = connected("ab")
    link = domain.link("a", is_ours=True)
    most = SERVER_LINK_CONFIG.message_bytes_max
    with pytest.raises(LimitExceeded, match=f"at most {most} can be sent") as raised:
        domain.feed("a", CloseServerLink(link, "done"), SendOnServerLink(link, bytes(most + 1)))
    assert raised.value.limit == "message_bytes_max"
    domain.feed("a", SendOnServerLink(link, bytes(most)))
    domain.run(2)
    assert [payload for _, payload in domain.received("b")] == [bytes(most)]


def test_requests_that_name_nothing_are_refused_or_ignored() -> None:
    domain = connected("ab")
    for server in ("c", "a"):
        with pytest.raises(ConfigurationError, match="not another server of the domain"):
            domain.feed("a", ConnectServer(server))
    before = len(domain.reports)
    domain.feed("a", SendOnServerLink(99, b"x"), CloseServerLink(99, "x"), ConsumedOnServerLink(99, 1))
    domain.feed("b", DisconnectServer("a"))
    domain.run(2)
    assert len(domain.reports) == before
    with pytest.raises(ConfigurationError, match=r"servers.b.public_key"):
        domain.start("a", servers={"b": (domain.addresses["b"], bytes(32))})


# Strangers and replays -----------------------------------------------------------------------------------------------


def forged_offer(name: str = "b", keys: KeyPair | None = None, domain: str = DOMAIN, acceptor: str = "a") -> bytes:
    """Return an offer to a with the fresh keys of a stranger."""
    a, b = KeyPair(bytes([1]) * 32), KeyPair(bytes([2]) * 32)
    signed = LinkKeys(keys or b, a.public, domain=domain, opener=name, acceptor=acceptor, opens=True)
    return signed.offer(5, KeyPair(bytes([9]) * 32).public)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (forged_offer(keys=KeyPair(bytes([8]) * 32)), "forged"),
        (forged_offer(domain="other.example"), "forged"),
        (forged_offer(name="mallory"), "unknown server"),
        (forged_offer(name="a"), "unknown server"),
        (forged_offer(acceptor="c"), "misdirected"),
        (forged_offer()[:-1] + b"\x00", "forged"),
        (forged_offer()[:60], "malformed"),
        (bytes(8), "malformed"),
        (bytes(8) + b"\x02" + bytes([7]) * 80, "stale"),
    ],
)
def test_a_datagram_of_a_stranger_is_counted_and_not_answered(data: bytes, reason: str) -> None:
    domain = connected("ba")
    assert domain.inject(data, "a") == []
    assert dict(domain.machines["a"].dropped) == {reason: 1}
    assert domain.machines["a"].pending == 0


def test_the_genuine_offer_of_these_tests_is_answered() -> None:
    domain = Domain("a", "b")
    (answer,) = (each for each in domain.inject(forged_offer(), "a") if isinstance(each, SendDatagram))
    assert answer.destination == domain.addresses["b"], "it goes where b is, whoever has sent the offer"


def test_a_server_without_the_keys_of_the_domain_neither_opens_nor_accepts() -> None:
    domain = Domain("a", "b")
    domain.kill("b")
    domain.start("b", keys=KeyPair(bytes([8]) * 32))
    domain.feed("a", ConnectServer("b"))
    domain.feed("b", ConnectServer("a"))
    domain.run(20)
    assert domain.reports == []
    assert domain.machines["a"].dropped["forged"] > 5
    assert domain.machines["b"].dropped["forged"] > 5
    assert all(data[8] == 1 for data in domain.handshakes()), "an offer was answered"


def test_a_replayed_offer_leaves_the_live_link_alone_and_is_forgotten() -> None:
    domain = connected("ab")
    for _ in range(2):
        domain.kill("a")
        domain.start("a")
        domain.feed("a", ConnectServer("b"))
        domain.run(2)
    old, other, _ = dict.fromkeys(domain.handshakes("a"))
    domain.inject(other, "b")
    before, link = len(domain.reports), domain.link("b", is_ours=False)
    sent_bytes = 0
    for _ in range(20):
        outputs = domain.inject(old, "b")
        sent_bytes += sum(len(each.data) for each in outputs if isinstance(each, SendDatagram))
        assert domain.machines["b"].pending == 1
    assert 0 < sent_bytes < 20 * len(old)
    domain.feed("a", SendOnServerLink(domain.link("a", is_ours=True), b"still here"))
    domain.run(PENDING_S + 1)
    assert domain.received("b") == [(link, b"still here")]
    assert len(domain.reports) == before + 1
    assert domain.machines["b"].pending == 0
    assert domain.machines["a"].dropped["stale"] > 0


def test_a_replayed_conversation_opens_nothing_at_a_restarted_server() -> None:
    domain = connected("ab")
    domain.feed("a", SendOnServerLink(domain.link("a", is_ours=True), b"pay"))
    domain.run(0.5)
    recorded = [data for _, source, _, data in domain.sent if source == "a"]
    for name in ("a", "b"):
        domain.kill(name)
    domain.reports.clear()
    machine = domain.start("b")
    for data in recorded:
        domain.inject(data, "b")
    answer = domain.handshakes("b")[-1]
    for data in recorded[1:]:
        domain.inject(answer[17:25] + data[8:], "b")
    assert domain.reports == []
    assert machine.pending == 1
    assert machine.dropped["forged"] == len(recorded) - 1 - sum(map(is_handshake, recorded[1:]))


def test_an_answer_to_an_earlier_offer_opens_nothing() -> None:
    """The ids of both offers are the same, as they could be by chance."""

    class Fixed(SeededRandom):
        """Source of the same ids again and again, and of different keys."""

        def token(self, n_bytes: int) -> bytes:
            return bytes([7]) * 8 if n_bytes == 8 else super().token(n_bytes)

    domain = Domain("a", "b")
    answers = []
    for _ in range(2):
        a = ServerLinks(
            "a",
            domain.keys["a"],
            {"b": (domain.addresses["b"], domain.keys["b"].public)},
            DOMAIN,
            Fixed(domain.world),
            domain.new_link,
        )
        (offer, *_) = a.step([ConnectServer("b")], 0.0)
        assert isinstance(offer, SendDatagram)
        answers += [each for each in domain.inject(offer.data, "b") if isinstance(each, SendDatagram)]
    first, second = (each.data for each in answers)
    assert first[9:17] == second[9:17]
    assert a.step([DatagramReceived(SOCKET, domain.addresses["b"], first)], 0.0) == []
    assert a.dropped == {"forged": 1}
    assert a.step([DatagramReceived(SOCKET, domain.addresses["b"], second)], 0.0) != []


def test_a_datagram_on_another_socket_is_ignored() -> None:
    machine = Domain("a", "b").machines["a"]
    assert machine.step([DatagramReceived("data", ("10.0.0.2", 5601), forged_offer())], 0.0) == []
    assert machine.pending == 0


def test_a_resealed_first_packet_of_a_stranger_does_not_open_a_pending_link() -> None:
    domain = Domain("a", "b")
    domain.inject(forged_offer(), "a")
    acceptor_id = domain.handshakes("a")[0][17:25]
    for data in (acceptor_id, acceptor_id + (5).to_bytes(8, "big") + b"\x01" + bytes(60), acceptor_id + bytes(60)):
        assert domain.inject(data, "a") == []
    assert domain.machines["a"].dropped["forged"] == 3
    assert domain.reports == []
    assert domain.machines["a"].pending == 1


# Failures and restarts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dead", ["a", "b"])
def test_an_idle_link_to_a_dead_server_closes_within_five_seconds(dead: str) -> None:
    domain = connected("ab")
    alive = "b" if dead == "a" else "a"
    domain.run(30)
    assert len(domain.links(alive)) == 1
    domain.kill(dead)
    domain.run(NOTICED_S)
    assert domain.links(alive) == {}
    assert domain.reports[-1][2] == ServerLinkClosed(
        domain.reports[-1][2].link,  # type: ignore[attr-defined]
        dead,
        "the other side does not answer",
    )


@pytest.mark.parametrize("keepalive_s", [0.3, 3.0])
def test_the_keepalive_is_a_parameter(keepalive_s: float) -> None:
    domain = connected("ab", keepalive_s=keepalive_s)
    domain.run(3)
    sent = len(domain.sent)
    domain.run(30)
    pings = (len(domain.sent) - sent) / 4
    assert 0.7 * 30 / keepalive_s < pings < 1.3 * 30 / keepalive_s
    assert len(domain.links("a")) == len(domain.links("b")) == 1


@pytest.mark.parametrize("ways", [("ab",), ("ab", "ba")])
@pytest.mark.parametrize("restarted", ["a", "b"])
def test_links_are_there_again_about_a_second_after_a_restart(ways: tuple[str, ...], restarted: str) -> None:
    domain = connected(*ways)
    domain.run(10)
    before = {*domain.links("a"), *domain.links("b")}
    domain.kill(restarted)
    domain.start(restarted)
    for way in ways:
        if way[0] == restarted:
            domain.feed(restarted, ConnectServer(way[1]))
    domain.run(1.5)
    after = {*domain.links("a"), *domain.links("b")}
    assert len(domain.links("a")) == len(domain.links("b")) == len(ways)
    assert min(after) > max(before)


def test_a_new_link_of_a_restarted_server_lets_the_other_check_its_own_at_once() -> None:
    domain = connected("ab", "ba", keepalive_s=1_000.0)
    before = domain.link("a", is_ours=True)
    domain.kill("b")
    domain.start("b")
    domain.feed("b", ConnectServer("a"))
    domain.run(1)
    assert domain.link("a", is_ours=True) > before
    assert domain.link("a", is_ours=False)


def test_a_new_link_of_a_server_lets_the_other_repeat_its_offer_at_once() -> None:
    domain = Domain("a", "b")
    domain.kill("b")
    domain.feed("a", ConnectServer("b"))
    domain.run(30)
    domain.start("b")
    domain.feed("b", ConnectServer("a"))
    domain.run(0.2)
    assert len(domain.links("a")) == 2


def test_a_newer_link_of_a_server_replaces_the_one_before() -> None:
    domain = connected("ab", keepalive_s=1_000.0)
    old = domain.link("b", is_ours=False)
    domain.kill("a")
    domain.start("a")
    domain.feed("a", ConnectServer("b"))
    domain.run(0.2)
    reports = [report for _, at, report in domain.reports if at == "b"][1:]
    new = domain.link("b", is_ours=False)
    assert reports == [
        ServerLinkClosed(old, "a", "server a has opened a new link"),
        ServerLinkOpened(new, "a", False),
    ]
    assert new > old


def test_a_closed_own_link_is_opened_again_after_a_pause_that_doubles() -> None:
    domain = connected("ab")
    pauses = []
    for _ in range(4):
        link = domain.link("a", is_ours=True)
        domain.feed("a", CloseServerLink(link, "enough"))
        assert domain.reports[-1][2] == ServerLinkClosed(link, "b", "enough")
        closed_at = domain.world.now
        while not domain.links("a"):
            domain.run(0.01)
        pauses.append(domain.world.now - closed_at)
    for number, pause in enumerate(pauses):
        assert 0.75 * RETRY_S_MIN * 2**number <= pause <= 1.25 * RETRY_S_MIN * 2**number + 0.1
    domain.run(10)
    domain.feed("a", CloseServerLink(domain.link("a", is_ours=True), "enough"))
    domain.run(0.5)
    assert domain.link("a", is_ours=True)


def test_a_link_that_its_acceptor_closes_is_opened_again() -> None:
    domain = connected("ab")
    link = domain.link("b", is_ours=False)
    domain.feed("b", CloseServerLink(link, "enough"))
    assert domain.reports[-1][2] == ServerLinkClosed(link, "a", "enough")
    domain.run(2)
    assert domain.link("b", is_ours=False) > link
    assert domain.link("a", is_ours=True)


def test_a_disconnected_server_gets_no_offers_and_the_link_ends_on_both_sides() -> None:
    domain = connected("ab", "ba")
    kept = domain.link("a", is_ours=False)
    domain.feed("a", DisconnectServer("b"))
    domain.run(10)
    assert list(domain.links("a")) == [kept]
    assert [link.is_ours for link in domain.links("b").values()] == [True]
    domain.kill("b")
    domain.run(10)
    domain.feed("a", ConnectServer("b"))
    domain.run(1)
    domain.feed("a", DisconnectServer("b"))
    sent = len(domain.sent)
    domain.run(30)
    assert len(domain.sent) == sent
    assert domain.nodes["a"].timers.keys == []


def test_links_end_on_both_sides_and_others_take_their_place() -> None:
    domain = connected("ab", "ba")
    outputs = domain.machines["a"].step([EndServerLinks("the file has changed")], domain.world.now)
    assert sum(isinstance(each, ServerLinkClosed) for each in outputs) == 2
    assert domain.machines["a"].pending == 0
    assert domain.machines["a"].step([EndServerLinks("again")], domain.world.now) == []


def test_messages_and_numbers_of_many_lives_stay_apart() -> None:
    domain = connected("ab")
    for life in range(6):
        domain.feed("a", SendOnServerLink(domain.link("a", is_ours=True), b"%d" % life))
        domain.run(0.1)
        domain.kill("b")
        domain.start("b")
        domain.run(10)
    numbers = [report.link for _, _, report in domain.reports if isinstance(report, ServerLinkOpened)]
    assert len(set(numbers)) == len(numbers)
    assert min(numbers) > 0
    for name in ("a", "b"):
        own = [each.link for _, at, each in domain.reports if at == name and isinstance(each, ServerLinkOpened)]
        assert own == sorted(own)
    assert [payload for _, payload in domain.received("b")] == [b"%d" % life for life in range(6)]


def test_a_full_queue_fails_the_link() -> None:
    domain = Domain("a", "b")
    config = msgspec.structs.replace(SERVER_LINK_CONFIG, message_bytes_max=1_000, send_queue_bytes_max=5_000)
    domain.kill("a")
    domain.start("a", config=config)
    domain.feed("a", ConnectServer("b"))
    domain.run(1)
    link = domain.link("a", is_ours=True)
    domain.feed("a", *(SendOnServerLink(link, bytes(1_000)) for _ in range(6)))
    assert domain.reports[-1][2] == ServerLinkClosed(link, "b", "too much waits for the other side")
    domain.run(1.5)
    assert domain.link("a", is_ours=True) > link


@pytest.mark.parametrize("retry_s_max", [1.0, 2.0])
def test_offers_to_a_silent_server_are_no_further_apart_than_asked(retry_s_max: float) -> None:
    domain = Domain("a", "b")
    domain.nodes["a"].kill()
    domain.start("a", retry_s_max=retry_s_max)
    domain.lost = lambda source, destination, data: True
    domain.feed("a", ConnectServer("b"))
    domain.run(60)
    offers = [at for at, source, _, _ in domain.sent if source == "a"]
    gaps = [late - early for early, late in pairwise(offers)]
    assert retry_s_max < max(gaps) <= retry_s_max * (1 + RETRY_JITTER)
