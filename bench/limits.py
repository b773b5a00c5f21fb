"""Cost of strangers to a server: processor time of each request that it refuses, and memory of what it keeps for them.

A real ``wanderbus up`` on loopback, attacked from this process: microseconds are of the server's processor time, so
that other work on the machine disturbs them less; bytes are by how much its resident memory grows. docs/SECURITY.md
adds these up (``tools/limits.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import re
import resource
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import wanderbus
from harness.ports import free_port
from harness.process_figures import processor_s, resident_bytes
from harness.reporting import Goal, finish, goal
from wanderbus.config import BrokerConfig
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

HOST: Final = "127.0.0.1"
TRIES: Final = 3
REQUESTS: Final = 4_000
CONNECTIONS: Final = 200
SOURCES: Final = 4_000
WAITING: Final = 9_000
"""Number of waiting events, below the bound of a queue."""

LARGE_BYTES: Final = 30_000
LARGE: Final = 2_500
QUEUE_BYTES: Final = BrokerConfig().queue.bytes_max or 0
"""Smaller than the memory of those events: the oldest are dropped."""

PARTIAL_BYTES: Final = 50_000
"""Bytes of an unfinished message on each connection."""

NO_FLOOD: Final = """
[flood]
burst_requests = 1e9
stranger_burst_requests = 1e9
strangers_burst_requests = 1e9
"""
UNBOUNDED: Final = f"""
{NO_FLOOD}
[logins]
free_failures = 1_000_000
user_failures = 1e9
source_failures = 1e9
"""
BOUNDED: Final = """
[flood]
requests_per_s = 0.001
burst_requests = 10
refusals_per_s = 0.001
[sip_connections]
connections_per_host_max = 1
[logins]
pause_s = 3_600
pause_s_max = 3_600
"""

_PADDING: Final = f"User-Agent: {'x' * 300}\r\n"
"""Least size of a request that registrar and proxy answer."""

_numbers = itertools.count(1)

_NONCE: Final = re.compile(rb'nonce="([^"]+)"')


class Attacked:
    """A server in a process of its own."""

    def __init__(self, process: Process, ports: Mapping[str, int]) -> None:
        self.pid = process.pid
        self.ports = ports

    def us_each(self, count: int, attack: Callable[[int], object]) -> float:
        """Return the processor time of one ``attack`` in microseconds."""
        attack(-1)
        self.settle()
        before = processor_s([self.pid])
        for number in range(count):
            attack(number)
            if number % 64 == 63:
                time.sleep(0.02)  # a datagram that the system drops costs the server nothing
        self.settle()
        return (processor_s([self.pid]) - before) / count * 1e6

    def bytes_each(self, count: int, attack: Callable[[int], object]) -> float:
        """Return the growth of the server's memory with one ``attack``."""
        before = self.resident_bytes()
        for number in range(count):
            attack(number)
            if number % 64 == 63:
                time.sleep(0.02)
        self.settle()
        return max(0.0, (self.resident_bytes() - before) / count)

    def settle(self) -> None:
        """Wait until the server is idle."""
        used_s = -1.0
        while (now_s := processor_s([self.pid])) > used_s + 0.005:
            used_s = now_s
            time.sleep(0.5)

    def resident_bytes(self) -> int:
        """Return the resident memory of the server."""
        return resident_bytes(self.pid)


@contextlib.contextmanager
def attacked(settings: str = "") -> Iterator[Attacked]:
    """Run a server with these settings and its ports."""
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        process, ports = _started(Path(name), settings)
        try:
            yield Attacked(process, ports)
        finally:
            process.end()


def _started(directory: Path, settings: str) -> tuple[Process, Mapping[str, int]]:
    """Start a server; tried several times, because another program may take a free port first."""
    (directory / "users").touch(0o600)
    (directory / "users").write_text("alice:secret\n", encoding="utf-8")
    command = python("wanderbus", "up", "--config", "server.toml", "--users", "users", "--data-dir", "data")
    for _ in range(TRIES):
        ports = {name: free_port() for name in ("port", "broker_port", "data_port", "stream_port")}
        lines = [f"{key} = {value}" for key, value in ports.items()]
        (directory / "server.toml").write_text("\n".join([*lines, settings]), encoding="utf-8")
        process = Process("the server", command, directory / "errors", read=True, cwd=directory)
        try:
            process.line()
            return process, ports
        except CannotRunError as error:
            process.end()
            reason = error
    raise RuntimeError(f"the server did not start: {reason}")


def request(method: str, user: str = "alice", more: str = "") -> bytes:
    """Return a request of a stranger that does not repeat another."""
    number = next(_numbers)
    return (
        f"{method} sip:{'localhost' if method == 'REGISTER' else f'{user}@localhost'} SIP/2.0\r\n"
        f"Via: SIP/2.0/UDP {HOST}:9;branch=z9hG4bK{number};rport\r\nMax-Forwards: 70\r\n"
        f"From: <sip:{user}@localhost>;tag=1\r\nTo: <sip:{user}@localhost>\r\nCall-ID: c{number}\r\n"
        f"CSeq: 1 {method}\r\nContact: <sip:{user}@{HOST}:9>\r\n{more}{_PADDING}Content-Length: 0\r\n\r\n"
    ).encode()


def refused_requests() -> Iterator[Goal]:
    """Measure requests that are read, and then refused."""
    with attacked(UNBOUNDED) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sip, data = (HOST, server.ports["port"]), (HOST, server.ports["data_port"])
        called = HOST, server.ports["broker_port"]
        guess = guesses(sip)
        for name, attack in {
            "register_challenged": lambda n: sender.sendto(request("REGISTER"), sip),
            "password_wrong": lambda n: sender.sendto(guess(n, f"u{n}"), sip),
            "call_of_nobody": lambda n: sender.sendto(request("INVITE", "nobody"), sip),
            "broker_call_challenged": lambda n: sender.sendto(request("INVITE", "broker"), called),
            "sip_garbage": lambda n: sender.sendto(b"\x01" * 200, sip),
            "data_garbage": lambda n: sender.sendto(b"\x01" * 8, data),
            "data_unknown": lambda n: sender.sendto(b"\x01" * 1_000, data),
        }.items():
            yield goal(f"{name}_us", server.us_each(REQUESTS, attack), "us of processor time")
        stream = HOST, server.ports["stream_port"]
        yield goal("tcp_connection_us", server.us_each(CONNECTIONS, lambda n: connect(sip).close()), "us")
        yield goal("tls_handshake_us", server.us_each(CONNECTIONS, lambda n: secured(stream).close()), "us")


def dropped_requests() -> Iterator[Goal]:
    """Measure requests beyond a limit."""
    with attacked(BOUNDED) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sip = HOST, server.ports["port"]
        with connect(sip):
            yield goal("tcp_over_limit_us", server.us_each(CONNECTIONS * 5, lambda n: connect(sip).close()), "us")
        yield goal(
            "over_flood_limit_us", server.us_each(REQUESTS, lambda n: sender.sendto(request("REGISTER"), sip)), "us"
        )
    with attacked(f"[logins]\npause_s = 3_600\npause_s_max = 3_600\n{NO_FLOOD}") as server:
        sip = HOST, server.ports["port"]
        guess = guesses(sip)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            attack = server.us_each(REQUESTS, lambda n: sender.sendto(guess(n, "alice"), sip))
            yield goal("password_too_early_us", attack, "us")


def kept_bytes() -> Iterator[Goal]:
    """Measure memory that is kept for strangers."""
    with attacked(UNBOUNDED) as server:
        sip = HOST, server.ports["port"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(200):
                sender.sendto(request("REGISTER"), sip)
            server.settle()
            each = server.bytes_each(SOURCES, lambda n: send_from(f"127.1.{n >> 8 & 255}.{n & 255}", sip))
            yield goal("source_bytes", each, "bytes")
            each = server.bytes_each(REQUESTS, lambda n: sender.sendto(request("INVITE", "nobody"), sip))
            yield goal("refused_call_bytes", each, "bytes")
            guess = guesses(sip)
            each = server.bytes_each(REQUESTS, lambda n: sender.sendto(guess(n, f"u{n}"), sip))
            yield goal("failed_login_bytes", each, "bytes")
    with attacked(UNBOUNDED) as server, contextlib.ExitStack() as opened:
        sip, stream = (HOST, server.ports["port"]), (HOST, server.ports["stream_port"])
        kept: list[socket.socket] = []

        def connecting(number: int) -> None:
            kept.append(opened.enter_context(connect(sip)))

        yield goal("tcp_connection_bytes", server.bytes_each(CONNECTIONS, connecting), "bytes")
        part = b"REGISTER sip:localhost SIP/2.0\r\nContent-Length: 60000\r\n\r\n" + bytes(PARTIAL_BYTES)
        yield goal("partial_message_bytes", server.bytes_each(CONNECTIONS, lambda n: kept[n].sendall(part)), "bytes")
        each = server.bytes_each(CONNECTIONS, lambda n: opened.enter_context(secured(stream)))
        yield goal("tls_connection_bytes", each, "bytes")


async def waiting_bytes(server: Attacked) -> list[Goal]:
    """Measure memory of events that wait for an absent user: per event, and per byte of a large one."""
    place = f"{HOST}:{server.ports['port']}"

    def agent_of(session: str) -> wanderbus.Agent:
        directory = Path(name) / session
        return wanderbus.connect(
            "sip:alice@localhost", password="secret", server=place, session=session, state_dir=directory
        )

    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as name:
        for subject in ("small", "large"):
            async with agent_of(subject) as agent:
                await agent.subscribe(subject).__aenter__()  # left open: it ends with the agent
        grown: list[float] = []
        async with agent_of("publisher") as agent:
            await agent.publish("other", {"x": 1})
            for subject, text, count in (("small", "x", WAITING), ("large", "x" * LARGE_BYTES, LARGE)):
                before = server.resident_bytes()
                for _ in range(count // 100):
                    await asyncio.gather(*(agent.publish(subject, {"x": text}) for _ in range(100)))
                await asyncio.sleep(2.0)
                grown.append(server.resident_bytes() - before)
    small, large = grown
    return [
        goal("waiting_event_bytes", small / WAITING, "bytes beside its own"),
        goal("waiting_ratio", large / QUEUE_BYTES, "bytes for each byte of events in a full queue"),
    ]


def connect(address: tuple[str, int]) -> socket.socket:
    """Open a TCP connection; the server may close it at once."""
    return socket.create_connection(address, timeout=5)


def secured(address: tuple[str, int]) -> socket.socket:
    """Open a TLS connection without verification."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connect(address))


def send_from(host: str, address: tuple[str, int]) -> None:
    """Send a request from another address of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind((host, 0))
        sender.sendto(request("REGISTER"), address)


def guesses(address: tuple[str, int]) -> Callable[[int, str], bytes]:
    """Return a factory of REGISTERs with wrong passwords, for a nonce of the server."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(5)
        sender.sendto(request("REGISTER"), address)
        found = _NONCE.search(sender.recv(65_535))
    assert found is not None
    nonce = found[1].decode()

    def guess(number: int, user: str) -> bytes:
        response = hashlib.sha256(str(number).encode()).hexdigest()
        credentials = (
            f'Authorization: Digest username="{user}", realm="localhost", nonce="{nonce}", uri="sip:localhost", '
            f'algorithm=SHA-256, qop=auth, nc={max(1, number + 2):08x}, cnonce="c", response="{response}"\r\n'
        )
        return request("REGISTER", user, credentials)

    return guess


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench limits", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the report to this file")
    options = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    goals = [*refused_requests(), *dropped_requests(), *kept_bytes()]
    with attacked(UNBOUNDED) as server:
        goals += asyncio.run(waiting_bytes(server))
    return finish("bench limits", [], goals, file=options.json, strict=False)
