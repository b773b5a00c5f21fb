"""Datagrams that waited too long in their socket are discarded, with one line for many."""

from __future__ import annotations

import logging
import socket
import struct
import time

import pytest

from wanderbus.runtime.net.fresh_datagrams import FreshDatagrams


class OldDatagrams:
    """A socket whose datagrams arrived in 1970."""

    def __init__(self, count: int) -> None:
        self._left = count

    def setsockopt(self, *_: int) -> None:
        """Accept every option."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 5060

    def recvmsg(self, *_: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, tuple[str, int]]:
        if not self._left:
            raise BlockingIOError
        self._left -= 1
        return b"x", [(socket.SOL_SOCKET, 35, struct.pack("@ll", 1, 0))], 0, ("127.0.0.1", 9)


def test_a_burst_of_old_datagrams_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that was stopped for a while finds all datagrams of that time at once."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    source = OldDatagrams(200)
    fresh = FreshDatagrams(source, 1.0)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "wanderbus.driver"), pytest.raises(BlockingIOError):
        fresh.receive(100)
    (line,) = caplog.messages
    assert "port 5060" in line
    assert "was stopped for a while" in line
    assert fresh.discarded == 200
    source._left, now[0] = 1, 101.0
    with pytest.raises(BlockingIOError):
        fresh.receive(100)
    assert "201 so far" in caplog.messages[-1]
