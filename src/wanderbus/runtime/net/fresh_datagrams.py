"""Datagrams of a socket whose sender repeats them soon: those that waited too long unread are discarded.

A program with too little processor time falls behind its sockets. If it served the oldest datagrams first, each answer
would be late, every sender would have sent again or given up, and it would never catch up.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import sys
import time
from typing import Any, Final

_log = logging.getLogger("wanderbus.driver")

_SO_TIMESTAMPNS: Final = 35
"""Socket option of Linux, which the module ``socket`` lacks: the kernel adds the time of arrival to each datagram."""

_TIMESPEC: Final = struct.Struct("@ll")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_TIMESPEC.size)
_NS: Final = 1_000_000_000

LOG_EACH_S: Final = 1.0
"""Pause between two lines about discarded datagrams of a socket."""


class FreshDatagrams:
    """Receives the datagrams of ``source`` that arrived at most ``waited_s_max`` ago.

    Where the system does not tell the time of arrival, it receives all. A step of the clock forward discards what waits
    at that moment.
    """

    def __init__(self, source: socket.socket, waited_s_max: float) -> None:
        self.discarded = 0
        """Datagrams that were discarded."""
        self._logged_s = -LOG_EACH_S
        self._source = source
        self._waited_s_max = waited_s_max
        if sys.platform == "linux":
            # Some containers have no such option, and can still be served.
            with contextlib.suppress(OSError):
                source.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def receive(self, bytes_max: int) -> tuple[bytes, Any]:
        """Return the next datagram and its sender, as :meth:`socket.socket.recvfrom` does, and with its errors."""
        while True:
            data, ancillary, _, address = self._source.recvmsg(bytes_max, _ANCILLARY_BYTES)
            if _waited_s(ancillary) <= self._waited_s_max:
                return data, address
            self._discard()

    def _discard(self) -> None:
        """Count a datagram; log the first one, and later ones at intervals."""
        self.discarded += 1
        if (now := time.monotonic()) - self._logged_s >= LOG_EACH_S:
            self._logged_s = now
            _log.warning(
                "datagrams at port %s waited longer than %g s and are discarded, %s so far: the processor is "
                "overloaded, or this process or its machine was stopped for a while",
                self._source.getsockname()[1],
                self._waited_s_max,
                self.discarded,
            )


def _waited_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    """Return the time since a datagram arrived; 0 if that is unknown."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS) and len(data) == _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack(data)
            waited_ns: int = time.time_ns() - seconds * _NS - nanoseconds
            return waited_ns / _NS
    return 0.0
