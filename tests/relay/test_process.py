"""The real command: datagrams and TCP between two parties, with a proxy's commands in between (SPEC I-01, I-05)."""

from __future__ import annotations

import contextlib
import json
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.relay.desk import A_ID, B_ID, medium, packet, sdp
from tests.relay.process import WAIT_S, Proxy, datagram_socket, place, relaying
from wanderbus.relay import ng
from wanderbus.runtime.net.relayed_connections import HALF_CLOSED_S_MAX
from wanderbus.tcp.frames import encode_hello

pytestmark = pytest.mark.integration

HELLO = encode_hello(0, B_ID, A_ID, bytes(16))


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with relaying() as (proxy, _):
        yield proxy


def hears(party: socket.socket) -> bytes:
    return party.recv(65_536)


def silent(party: socket.socket) -> bool:
    """Return whether no data has arrived since the relay responded to a command."""
    return not select.select([party], [], [], 0.05)[0]


def test_datagrams_pass_unchanged_both_ways(proxy: Proxy) -> None:
    with datagram_socket() as a, datagram_socket() as b:
        to_b, to_a = proxy.call(sdp(place(a), A_ID), sdp(place(b), B_ID), call="unchanged")
        for size in (0, 1, 200, 1_200, 8_193, 60_000):
            data = bytes(number % 251 for number in range(size))
            a.sendto(data, to_b)
            assert hears(b) == data
            b.sendto(data, to_a)
            assert hears(a) == data


def test_a_moved_party_is_followed_and_a_stranger_ignored(proxy: Proxy) -> None:
    with datagram_socket() as a, datagram_socket() as b, datagram_socket() as moved, datagram_socket() as stranger:
        to_b, to_a = proxy.call(sdp(place(a), A_ID), sdp(place(b), B_ID), call="moved")
        before = proxy.figures()
        stranger.sendto(packet(B_ID + 1), to_b)
        moved.sendto(packet(B_ID), to_b)
        assert hears(b) == packet(B_ID)
        b.sendto(packet(A_ID), to_a)
        assert hears(moved) == packet(A_ID)
        after = proxy.figures()
        assert after["unknown_source"] - before["unknown_source"] == 1
        assert silent(b)
        assert silent(stranger)
        assert silent(a)


def test_many_datagrams_at_once_all_arrive(proxy: Proxy) -> None:
    with datagram_socket() as a, datagram_socket() as b:
        to_b, _ = proxy.call(sdp(place(a), A_ID), sdp(place(b), B_ID), call="many")
        for start in range(0, 2_000, 50):
            for number in range(start, start + 50):
                a.sendto(number.to_bytes(4, "big"), to_b)
            assert [int.from_bytes(hears(b), "big") for _ in range(50)] == list(range(start, start + 50))


def test_ports_are_closed_with_the_call(proxy: Proxy) -> None:
    with datagram_socket() as a, datagram_socket() as b:
        to_b, _ = proxy.call(sdp(place(a), A_ID), sdp(place(b), B_ID), call="closed")
        assert proxy.give(ng.delete(call_id="closed"))["result"] == "ok"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind(to_b)


def test_more_ports_than_files_that_are_usually_allowed() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2_000:
        pytest.skip(f"a process may have {most} files open here at the most")
    with relaying() as (proxy, _):
        text = sdp(("127.0.0.1", 4_000))
        offers = (ng.describe("offer", text, call_id=str(number), from_tag="a") for number in range(700))
        assert {proxy.give(offer)["result"] for offer in offers} == {"ok"}


# TCP ------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def broker(proxy: Proxy, call: str, protocol: str = "TCP") -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    """A listening broker, and where its agent has to connect to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT_S)
        agent = sdp(("127.0.0.1", 9), A_ID, protocol=protocol, setup="active")
        to_b, _ = proxy.call(agent, sdp(place(listener), B_ID, protocol=protocol, setup="passive"), call=call)
        yield listener, to_b
    proxy.give(ng.delete(call_id=call))


def connected(listener: socket.socket, to_b: tuple[str, int], opening: bytes = HELLO) -> tuple[socket.socket, ...]:
    agent = socket.create_connection(to_b, WAIT_S)
    agent.sendall(opening)
    accepted = listener.accept()[0]
    accepted.settimeout(WAIT_S)
    assert exactly(accepted, len(opening)) == opening
    return agent, accepted


def exactly(party: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := party.recv(min(size - len(data), 1 << 20))):
        data += piece
    return data


@pytest.mark.parametrize("protocol", ["TCP", "TCP/TLS"])
def test_bytes_pass_both_ways_and_each_side_may_end_first(proxy: Proxy, protocol: str) -> None:
    opening = HELLO if protocol == "TCP" else b"\x16\x03\x01" + bytes(200)
    with broker(proxy, f"bytes {protocol}", protocol) as (listener, to_b):
        agent, accepted = connected(listener, to_b, opening)
        with agent, accepted:
            agent.sendall(b"question")
            assert exactly(accepted, 8) == b"question"
            agent.shutdown(socket.SHUT_WR)
            assert accepted.recv(1) == b""
            accepted.sendall(b"a long answer" * 10_000)
            accepted.shutdown(socket.SHUT_WR)
            assert exactly(agent, 1 << 30) == b"a long answer" * 10_000


def test_nobody_is_connected_to_before_the_answer(proxy: Proxy) -> None:
    """An offer may name any host and port; an early connection waits until the called side has answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        offer = sdp(place(listener), B_ID, protocol="TCP", setup="passive")
        shown = medium(proxy.give(ng.describe("offer", offer, call_id="early", from_tag="a"))["sdp"])
        with socket.create_connection((shown.address, shown.port), WAIT_S) as early:
            early.sendall(HELLO)
            assert not select.select([listener], [], [], 0.3)[0]
            answer = sdp(("127.0.0.1", 9), A_ID, protocol="TCP", setup="active")
            proxy.give(ng.describe("answer", answer, call_id="early", from_tag="a", to_tag="b"))
            listener.settimeout(WAIT_S)
            with listener.accept()[0] as accepted:
                assert exactly(accepted, len(HELLO)) == HELLO
    proxy.give(ng.delete(call_id="early"))


def test_a_connection_that_does_not_name_the_party_is_closed(proxy: Proxy) -> None:
    with broker(proxy, "stranger") as (listener, to_b):
        with socket.create_connection(to_b, WAIT_S) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n")
            assert stranger.recv(1) == b""
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_side_that_does_not_read_holds_the_other_back(proxy: Proxy) -> None:
    """The relay's buffer is bounded: the sender is stopped long before it has sent all its data."""
    with broker(proxy, "slow") as (listener, to_b):
        agent, accepted = connected(listener, to_b)
        with agent, accepted:
            before = proxy.figures()["bytes"]
            agent.setblocking(False)
            written = 0
            with contextlib.suppress(BlockingIOError):
                while written < 64 * 2**20:
                    written += agent.send(bytes(65_536))
                    if not select.select([], [agent], [], 0.3)[1]:
                        break
            assert written < 32 * 2**20
            carried = proxy.figures()["bytes"] - before
            assert carried < written
            agent.setblocking(True)
            assert exactly(accepted, written) == bytes(written)


def test_a_frequently_moving_party_has_room_for_the_next_connection(proxy: Proxy) -> None:
    """A connection that a party has left behind ends when the other side closes it, and no longer counts."""
    with broker(proxy, "moving") as (listener, to_b), contextlib.ExitStack() as opened:
        agent, accepted = map(opened.enter_context, connected(listener, to_b))
        began_s = time.monotonic()
        for _ in range(12):
            left, closing = agent, accepted
            agent, accepted = map(opened.enter_context, connected(listener, to_b))
            closing.close()
            assert left.recv(1) == b""
        assert time.monotonic() - began_s < HALF_CLOSED_S_MAX


def test_the_end_of_a_call_ends_its_connections(proxy: Proxy) -> None:
    with broker(proxy, "ended") as (listener, to_b):
        agent, accepted = connected(listener, to_b)
        with agent, accepted:
            proxy.give(ng.delete(call_id="ended"))
            assert accepted.recv(1) == b""
            assert agent.recv(1) == b""
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(to_b, WAIT_S)


def test_a_broker_that_is_not_there_ends_the_agents_connection(proxy: Proxy) -> None:
    with broker(proxy, "away") as (listener, to_b):
        listener.close()
        with socket.create_connection(to_b, WAIT_S) as agent:
            agent.sendall(HELLO)
            with contextlib.suppress(ConnectionError):
                assert agent.recv(1) == b""


# The command ----------------------------------------------------------------------------------------------------------


def test_it_ends_at_a_signal_and_prints_its_counters() -> None:
    with relaying() as (proxy, process), datagram_socket() as a, datagram_socket() as b:
        to_b, _ = proxy.call(sdp(place(a), A_ID), sdp(place(b), B_ID))
        a.sendto(b"12345", to_b)
        assert hears(b) == b"12345"
        process.send_signal(signal.SIGINT)
        figures = json.loads(process.line(WAIT_S))["figures"]
        assert (figures["calls"], figures["streams"]["datagrams"], figures["streams"]["bytes"]) == (1, 1, 5)
        assert process.wait(WAIT_S) == 0


def test_figures_come_again_and_again_where_asked() -> None:
    with relaying("--figures-s", "0.1") as (_, process):
        lines = [json.loads(process.line(WAIT_S)) for _ in range(2)]
    assert [set(line) for line in lines] == [{"figures"}, {"figures"}]


def test_bounds_are_those_of_the_command_line() -> None:
    with relaying("--calls-max", "1", "--idle-s", "0.1") as (proxy, _):
        offers = [ng.describe("offer", sdp(("127.0.0.1", 4_000)), call_id=str(n), from_tag="a") for n in range(2)]
        assert [proxy.give(offer)["result"] for offer in offers] == ["ok", "load limit"]
        deadline = time.monotonic() + WAIT_S
        while proxy.give(ng.ping()) and proxy.give({"command": "list"})["calls"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "relay.toml"
    file.write_text('ports = "41000-41009"\n[limits]\nopening_s_max = 0.2\n')
    with relaying("--config", str(file), "--advertise", "192.0.2.1") as (proxy, _):
        offer = ng.describe("offer", sdp(("127.0.0.1", 4_000)), call_id="1", from_tag="a")
        text = proxy.give(offer)["sdp"]
        assert "c=IN IP4 192.0.2.1" in text
        assert 41_000 <= int(text.partition("m=application ")[2].split()[0]) <= 41_009
        with broker(proxy, "mute") as (_, to_b), socket.create_connection(("127.0.0.1", to_b[1]), WAIT_S) as mute:
            assert mute.recv(1) == b"", "it says nothing, and is closed in time"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--ports", "40000"], "ports: 40000 is not FIRST-LAST"),
        (["--ports", "5-4"], "ports: 5-4"),
        (["--ports", "65000-66000"], "ports: 65000-66000"),
        (["--address", "nowhere"], "address: nowhere is not an IP address"),
        (["--address", "192.0.2.1"], "address 192.0.2.1 or ng_listen 127.0.0.1:0 cannot be used"),
        (["--ng-listen", "0.0.0.0:0"], "ng_from: name the proxies"),
        (["--ng-listen", "127.0.0.1"], "ng_listen: 127.0.0.1 is not HOST:PORT"),
        (["--calls-max", "0"], "--calls-max must be above 0"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
    ],
)
def test_unusable_options_are_one_line(arguments: list[str], complaint: str) -> None:
    words = [sys.executable, "-m", "wanderbus", "relay", "--ng-listen", "127.0.0.1:0", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"wanderbus: {complaint}")
    assert done.stderr.count("\n") == 1


def test_ipv6() -> None:
    with relaying("--address", "::1") as (proxy, _), datagram_socket("::1") as a, datagram_socket("::1") as b:
        to_b, to_a = proxy.call(sdp(place(a), A_ID), sdp(place(b), B_ID))
        a.sendto(b"there", to_b)
        assert hears(b) == b"there"
        b.sendto(b"and back", to_a)
        assert hears(a) == b"and back"
