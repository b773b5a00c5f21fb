"""Recording a SIP trace: the taps of drivers, and the file that cannot grow without bound (SPEC U-06)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.sip.trace_world import ALICE, BEGAN_US, BROKER, entry, moving_call, secrets_of, traced
from wanderbus.errors import ConfigurationError
from wanderbus.machine import (
    Address,
    DatagramReceived,
    Input,
    Output,
    SendDatagram,
    SendOnStream,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.runtime.files.trace_file import TraceFile, read_trace
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.sip_trace import SipRecorder, SipTap
from wanderbus.sip.message.targets import Target
from wanderbus.sip.trace.trace import Trace

MESSAGE = b"OPTIONS sip:x SIP/2.0\r\nCall-ID: 1\r\nContent-Length: 4\r\n\r\nbody"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.fixture
def recorder() -> SipRecorder:
    return SipRecorder(Trace())


@pytest.fixture
def tap(recorder: SipRecorder) -> SipTap:
    tap = recorder.tap()
    tap.trace("sip", ALICE)
    return tap


def test_a_file_gives_back_what_was_written(path: Path) -> None:
    sent = [*traced(moving_call()), entry(b"\xff\x00 no text \xfe"), entry("Grüße \u2028\x1b".encode())]
    file = TraceFile.open(path)
    for each in sent:
        file.write(each)
    file.close()
    assert list(read_trace([path])) == sent
    assert path.stat().st_mode & 0o077 == 0


def test_no_secret_reaches_the_file(path: Path) -> None:
    raw = moving_call()
    recorder = SipRecorder(Trace(), TraceFile.open(path))
    for each in raw:
        recorder.record(each)
    recorder.close()
    written = path.read_bytes()
    assert secrets_of(raw)
    assert [secret for secret in secrets_of(raw) if secret in written] == []
    assert b"nonce=***" in written


def test_secrets_in_a_file_of_others_are_taken_out(path: Path) -> None:
    file = TraceFile.open(path)
    file.write(entry(b"INVITE sip:bob:hunter2@example.org SIP/2.0\r\n\r\n"))
    file.close()
    assert b"hunter2" in path.read_bytes()
    assert b"hunter2" not in next(iter(read_trace([path]))).data


def test_a_file_under_a_flood_is_rotated(path: Path) -> None:
    file = TraceFile.open(path, bytes_max=10_000)
    for number in range(1_000):
        file.write(entry(b"%d" % number))
        assert sum(each.stat().st_size for each in path.parent.iterdir()) <= 20_000
    file.close()
    aside = path.with_name("trace.jsonl.1")
    assert sorted(path.parent.iterdir()) == [path, aside]
    kept = [int(each.data) for each in read_trace([aside, path])]
    assert kept == list(range(kept[0], 1_000))
    assert len(kept) > 50


def test_a_file_is_gone_on_with_and_a_torn_line_is_cut_off(path: Path) -> None:
    for data in (b"one", b"two"):
        file = TraceFile.open(path)
        file.write(entry(data))
        file.close()
        with path.open("ab") as torn:
            torn.write(b'{"at_us":17')
    assert [each.data for each in read_trace([path])] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "malformed"),
        (b"[]", "array"),
        (b'{"at_us":1}', "missing required field"),
        (b'{"at_us":-1,"source":["a",1],"destination":["b",1],"transport":"UDP","direction":"in"}', ">= 0"),
        (b'{"at_us":1,"source":["a",1],"destination":["b",99999],"transport":"UDP","direction":"in"}', "<= 65535"),
        (b'{"at_us":1,"source":["a",1],"destination":["b",1],"transport":"DCCP","direction":"in"}', "DCCP"),
        (b'{"at_us":1,"source":["a",1],"destination":["b",1],"transport":"UDP","direction":"in","data":"?"}', "base64"),
        (b"\xff\xfe", "malformed"),
        (b"x" * 2**21, "malformed"),
    ],
)
def test_a_corrupt_file_is_named_with_its_line(path: Path, line: bytes, why: str) -> None:
    file = TraceFile.open(path)
    file.write(entry(b"one"))
    file.close()
    with path.open("ab") as damaged:
        damaged.write(line + b"\n")
    with pytest.raises(ConfigurationError, match=rf"trace.jsonl, line 3: .*{why}") as caught:
        read_trace([path])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{}\n", b'{"format":"wanderbus-sip-trace","version":2}\n', bytes(range(100))])
def test_another_file_is_no_trace(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="is not a SIP trace"):
        read_trace([path])
    if data:
        with pytest.raises(ConfigurationError, match="exists and is not a SIP trace"):
            TraceFile.open(path)
        assert path.read_bytes() == data


def test_a_file_has_one_writer(path: Path) -> None:
    first = TraceFile.open(path)
    with pytest.raises(ConfigurationError, match="another process"):
        TraceFile.open(path)
    first.close()
    TraceFile.open(path).close()


def test_a_directory_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be written: Is a directory"):
        TraceFile.open(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        read_trace([tmp_path])


def test_a_failing_disk_ends_the_file_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recorder = SipRecorder(Trace(), TraceFile.open(path, bytes_max=100))
    recorder.record(entry(b"one"))
    path.unlink()
    path.mkdir()
    for _ in range(2):
        recorder.record(entry(b"two"))
    assert len(recorder.trace) == 3
    assert len(caplog.records) == 1


def test_a_tap_keeps_datagrams_of_its_sockets(recorder: SipRecorder, tap: SipTap) -> None:
    tap(DatagramReceived("sip", BROKER, MESSAGE))
    tap(SendDatagram("sip", BROKER, MESSAGE))
    tap(SendDatagram("data", BROKER, MESSAGE))
    tap(TimerFired("sip"))
    assert [(each.source, each.destination, each.transport, each.direction) for each in recorder.trace] == [
        (BROKER, ALICE, "UDP", "in"),
        (ALICE, BROKER, "UDP", "out"),
    ]
    assert all(each.at_us > BEGAN_US for each in recorder.trace)


@pytest.mark.parametrize("data", [b"", b"\r\n", b"\r\n\r\n", b"\0", b"\0\1\0\0\x21\x12\xa4\x42" + bytes(12)])
def test_keep_alives_are_no_messages(recorder: SipRecorder, tap: SipTap, data: bytes) -> None:
    """RFC 5626 3.5.1, 3.5.2."""
    tap(DatagramReceived("sip", BROKER, data))
    tap(SendOnStream("sip", Target("TCP", BROKER), data))
    assert len(recorder.trace) == 0


def test_a_stream_is_cut_into_messages_before_it_is_kept(recorder: SipRecorder, tap: SipTap) -> None:
    """A secret that came in two pieces would be found in neither."""
    secret = b"OPTIONS sip:bob:hunter2@x SIP/2.0\r\nAuthorization: Basic hunter2\r\nContent-Length: 0\r\n\r\n"
    for byte in MESSAGE + b"\r\n\r\n" + secret:
        tap(StreamReceived("sip", 1, BROKER, bytes([byte]), "TLS"))
        tap(StreamReceived("other", 1, BROKER, bytes([byte]), "TCP"))
    tap(StreamReceived("sip", 2, BROKER, MESSAGE[:10], "TCP"))
    tap(StreamClosed("sip", 2, "gone"))
    tap(SendOnStream("sip", Target("TCP", BROKER), MESSAGE))
    kept = list(recorder.trace)
    assert [(each.data, each.transport, each.direction) for each in kept[::2]] == [
        (MESSAGE, "TLS", "in"),
        (MESSAGE, "TCP", "out"),
    ]
    assert kept[1].data.startswith(b"OPTIONS sip:bob:***@x")
    assert b"hunter2" not in kept[1].data


def test_each_transport_has_its_own_port(recorder: SipRecorder) -> None:
    tap = recorder.tap()
    tap.trace("sip", ALICE, {"TLS": (ALICE[0], 5061)})
    for transport in ("TCP", "TLS"):
        tap(StreamReceived("sip", 1, BROKER, MESSAGE, transport))
    assert [each.destination for each in recorder.trace] == [ALICE, (ALICE[0], 5061)]


def test_an_answer_goes_back_on_its_connection(recorder: SipRecorder, tap: SipTap) -> None:
    """Its target is where the answer would go if the connection were gone (RFC 3261 18.2.2)."""
    tap(StreamReceived("sip", 7, BROKER, MESSAGE))
    tap(SendOnStream("sip", Target("TCP", ("10.9.9.9", 9)), MESSAGE, 7))
    tap(StreamClosed("sip", 7, "gone"))
    tap(SendOnStream("sip", Target("TCP", ("10.9.9.9", 9)), MESSAGE, 7))
    assert [each.destination for each in recorder.trace] == [ALICE, BROKER, ("10.9.9.9", 9)]


class Echo:
    """Sends everything back."""

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        return [SendDatagram(i.socket, i.source, i.data) for i in inputs if isinstance(i, DatagramReceived)]


@pytest.mark.integration
def test_a_driver_passes_messages_to_its_tap(recorder: SipRecorder, tap: SipTap) -> None:
    async def talk() -> tuple[Address, Address]:
        driver = Driver(Echo(), ignore, tap=tap)
        bound = driver.bind({"sip": ("127.0.0.1", 0)})["sip"]
        tap.trace("sip", bound)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        transport, _ = await loop.create_datagram_endpoint(lambda: Answer(answered), remote_addr=bound)
        transport.sendto(MESSAGE)
        assert await asyncio.wait_for(answered, 10) == MESSAGE
        peer: Address = transport.get_extra_info("sockname")
        transport.close()
        driver.close()
        return bound, peer

    bound, peer = asyncio.run(talk())
    assert [(each.source, each.destination, each.direction, each.data) for each in recorder.trace] == [
        (peer, bound, "in", MESSAGE),
        (bound, peer, "out", MESSAGE),
    ]


class Answer(asyncio.DatagramProtocol):
    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self.answered = answered

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.answered.set_result(data)


ignore: Callable[[Output], None] = lambda output: None  # noqa: E731
