"""Services beside a server: frames, proofs, refusals, and restarts of either side."""

from __future__ import annotations

import logging
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from wanderbus.errors import AuthenticationError, ConfigurationError, RemoteProtocolError, StorageError
from wanderbus.runtime.services import service as service_module
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.frames import (
    FRAME_BYTES_MAX,
    PROTOCOL,
    AnswerFrame,
    OpeningFrame,
    Proof,
    RequestFrame,
    ServiceAway,
    admit,
    introduce,
    peer_user,
    send,
)
from wanderbus.runtime.services.frames import receive as received
from wanderbus.runtime.services.places import places_of
from wanderbus.runtime.services.service import Service

KEY = b"k" * 32


class Word(msgspec.Struct):
    text: str


def upper(body: msgspec.Raw) -> Word:
    return Word(msgspec.msgpack.decode(body, type=Word).text.upper())


def refuse(body: msgspec.Raw) -> Word:
    raise StorageError("there is no such word; give another")


def delay(body: msgspec.Raw) -> Word:
    raise ServiceAway("the words are being sorted")


def fail(body: msgspec.Raw) -> Word:
    raise KeyError("a defect")


HANDLERS = {("upper", 1): upper, ("refuse", 1): refuse, ("delay", 1): delay, ("fail", 1): fail}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, "words", HANDLERS) as service:
        yield service


@pytest.fixture
def caller(tmp_path: Path) -> Iterator[ServiceCaller]:
    caller = ServiceCaller(tmp_path, "words", 5.0)
    yield caller
    caller.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5.0)
        theirs.settimeout(5.0)
        yield ours, theirs


def ask(caller: ServiceCaller, name: str = "upper", version: int = 1) -> str:
    return caller.ask(name, version, Word("loud"), Word).text


def test_frames_keep_their_bounds(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    for number in (1, 2):
        send(ours, AnswerFrame(number, msgspec.Raw(msgspec.msgpack.encode("x" * number))))
    assert [received(theirs, AnswerFrame) for _ in range(2)] == [
        AnswerFrame(1, msgspec.Raw(b"\xa1x")),
        AnswerFrame(2, msgspec.Raw(b"\xa2xx")),
    ]
    ours.close()
    assert received(theirs, AnswerFrame) is None


@pytest.mark.parametrize(
    "data", [struct.pack(">I", FRAME_BYTES_MAX + 1), b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x01\x05"]
)
def test_a_frame_that_is_none_is_refused(pair: tuple[socket.socket, socket.socket], data: bytes) -> None:
    ours, theirs = pair
    ours.sendall(data)
    with pytest.raises(RemoteProtocolError):
        received(theirs, RequestFrame)


def test_a_frame_that_is_cut_off_is_an_end(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.sendall(b"\x00\x00\x00\x09abc")
    ours.close()
    assert received(theirs, RequestFrame) is None


@pytest.mark.parametrize(("service_key", "caller_key"), [(KEY, b"x" * 32), (b"x" * 32, KEY)])
def test_neither_side_accepts_another_key(
    pair: tuple[socket.socket, socket.socket], service_key: bytes, caller_key: bytes
) -> None:
    ours, theirs = pair
    faults: list[Exception] = []

    def serve() -> None:
        with ours:
            try:
                admit(ours, "words", service_key)
            except AuthenticationError as error:
                faults.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(ServiceAway, match="another key"):
        introduce(theirs, "words", caller_key)
    thread.join()
    assert "does not know its key" in str(faults[0])


def test_a_proof_is_no_proof_of_the_other_side(pair: tuple[socket.socket, socket.socket]) -> None:
    """A program that knows no key cannot send a caller's proof back as its own."""
    ours, theirs = pair

    def reflect() -> None:
        send(ours, OpeningFrame(PROTOCOL, "words", b"n" * 32))
        proof = received(ours, Proof)
        assert proof is not None
        send(ours, proof)

    thread = threading.Thread(target=reflect)
    thread.start()
    with pytest.raises(ServiceAway, match="another key"):
        introduce(theirs, "words", KEY)
    thread.join()


def test_a_request_has_its_answer(service: Service, caller: ServiceCaller) -> None:
    assert [ask(caller) for _ in range(3)] == ["LOUD"] * 3
    assert service.answered >= 2


def test_files_are_for_the_owner_only(service: Service, tmp_path: Path) -> None:
    places = places_of(tmp_path, "words")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (places.socket.parent, places.socket, places.key)]
    assert modes == [0o700, 0o600, 0o600]


def test_refusals_differ_from_a_service_that_cannot_answer_now(
    service: Service, caller: ServiceCaller, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StorageError, match="no such word") as refused:
        ask(caller, "refuse")
    assert not isinstance(refused.value, ServiceAway)
    for name, version, reason in (
        ("delay", 1, "being sorted"),
        ("fail", 1, "KeyError"),
        ("upper", 2, "no request upper in version 2"),
        ("other", 1, "no request other"),
    ):
        with pytest.raises(ServiceAway, match=reason):
            ask(caller, name, version)
    assert ask(caller) == "LOUD"
    assert "failed to answer fail" in caplog.text


def test_a_service_is_known_once_it_has_a_key(tmp_path: Path, caller: ServiceCaller) -> None:
    known = [caller.is_known]
    with Service(tmp_path, "words", HANDLERS):
        known.append(caller.is_known)
    assert [*known, caller.is_known] == [False, True, True]


def test_a_caller_outlives_its_service(tmp_path: Path, caller: ServiceCaller) -> None:
    for _ in range(2):
        with Service(tmp_path, "words", HANDLERS):
            assert ask(caller) == "LOUD"
        with pytest.raises(ServiceAway, match="does not run"):
            ask(caller)


def test_a_connection_that_a_restart_has_ended_is_opened_again(tmp_path: Path, caller: ServiceCaller) -> None:
    for _ in range(3):
        with Service(tmp_path, "words", HANDLERS):
            assert ask(caller) == "LOUD"


def test_a_killed_service_leaves_a_socket_that_the_next_one_replaces(tmp_path: Path, caller: ServiceCaller) -> None:
    with Service(tmp_path, "words", HANDLERS):
        pass
    left = places_of(tmp_path, "words").socket
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(left))
    with pytest.raises(ServiceAway, match="does not run"):
        ask(caller)
    with Service(tmp_path, "words", HANDLERS):
        assert ask(caller) == "LOUD"


def test_a_service_that_hangs_is_away(tmp_path: Path) -> None:
    done = threading.Event()

    def wait(body: msgspec.Raw) -> Word:
        done.wait()
        return Word("late")

    caller = ServiceCaller(tmp_path, "words", 0.05)
    with Service(tmp_path, "words", {**HANDLERS, ("wait", 1): wait}):
        with pytest.raises(ServiceAway, match="has not answered for"):
            ask(caller, "wait")
        assert ask(caller) == "LOUD"
        done.set()
    caller.close()


def test_a_close_ends_a_request_that_waits(tmp_path: Path) -> None:
    asked, done = threading.Event(), threading.Event()
    faults: list[Exception] = []

    def wait(body: msgspec.Raw) -> Word:
        asked.set()
        done.wait()
        return Word("late")

    caller = ServiceCaller(tmp_path, "words", 60.0)

    def request() -> None:
        try:
            ask(caller, "wait")
        except ServiceAway as error:
            faults.append(error)

    with Service(tmp_path, "words", {("wait", 1): wait}):
        thread = threading.Thread(target=request)
        thread.start()
        assert asked.wait(10)
        caller.close()
        thread.join(10)
        assert not thread.is_alive()
        done.set()
    assert len(faults) == 1


def test_a_second_service_of_the_name_is_refused(service: Service, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="another process is the service words"):
        Service(tmp_path, "words", HANDLERS).start()
    assert service.path.exists()


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="give the data directory"):
        Service(tmp_path / "missing", "words", HANDLERS).start()


def test_a_path_longer_than_an_address_serves(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    caller = ServiceCaller(directory, "words", 5.0)
    before = len(os.listdir("/proc/self/fd"))
    with Service(directory, "words", HANDLERS):
        assert ask(caller) == "LOUD"
    caller.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_caller_of_another_user_is_refused_with_the_reason(tmp_path: Path) -> None:
    seen: list[int] = []

    def refusal(user: int) -> str:
        seen.append(user)
        return f"user {user} gets no answer; ask as another one"

    caller = ServiceCaller(tmp_path, "words", 5.0)
    with Service(tmp_path, "words", HANDLERS, refusal):
        with pytest.raises(AuthenticationError, match=f"user {os.geteuid()} gets no answer"):
            ask(caller)
        caller.close()
    assert seen == [os.geteuid()]


def test_the_system_names_the_user_of_a_caller(pair: tuple[socket.socket, socket.socket]) -> None:
    assert peer_user(pair[0]) == os.geteuid()


def test_strangers_do_not_occupy_the_service(
    service: Service, caller: ServiceCaller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wanderbus.service")
    monkeypatch.setattr(service_module, "ADMISSION_S_MAX", 0.05)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(service.path))
        stranger.settimeout(5)
        while stranger.recv(1_024):  # the opening, and then the end
            pass
    assert ask(caller) == "LOUD"
