"""Keeping a SIP trace of what drivers send and receive (SPEC U-06).

::

    recorder = SipRecorder.open(path)
    tap = recorder.tap()
    driver = Driver(machine, on_report, tap=tap)
    tap.hears("sip", driver.bind({"sip": address})["sip"])
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
)
from wanderbus.runtime.files.trace_file import TraceFile
from wanderbus.runtime.system_random import wall_us
from wanderbus.sip.message.framing import StreamFramer
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.trace.trace import Direction, Trace, TraceEntry

_log = logging.getLogger("wanderbus.sip_trace")

_KEEP_ALIVE: Final = b"\r\n\0"
_STUN: Final = (0, 1)


class SipRecorder:
    """The trace of one process: in memory, and in a file if there is one."""

    def __init__(self, trace: Trace, file: TraceFile | None = None) -> None:
        self.trace = trace
        self._file = file

    @classmethod
    def open(cls, path: Path) -> SipRecorder:
        """Return the trace of a server, in the file at ``path``; :class:`ConfigurationError` if that cannot be."""
        return cls(Trace(), TraceFile.open(path))

    def tap(self) -> SipTap:
        """Return a tap for one driver."""
        return SipTap(self)

    def record(self, entry: TraceEntry) -> None:
        """Keep one message; a disk that fails ends the file, not the process."""
        entry = self.trace.add(entry)
        if self._file is None:
            return
        try:
            self._file.write(entry)
        except (OSError, ConfigurationError) as error:
            _log.warning("the SIP trace %s ends here: %s", self._file.path, error)
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class SipTap:
    """What a driver tells of all that comes and goes; keeps the SIP messages of the sockets it was told of.

    A stream is cut into messages first: a secret could stand across two pieces of it. Keep-alives are no messages.
    What was sent is what the machine asked for; a connection opened from here is traced with the port we listen on.
    """

    def __init__(self, recorder: SipRecorder) -> None:
        self._recorder = recorder
        self._local: dict[str, dict[str, Address]] = {}
        self._connections: dict[tuple[str, int], tuple[Address, StreamFramer]] = {}

    def hears(self, socket: str, local: Address, streams: Mapping[str, Address] | None = None) -> None:
        """Trace the socket of that name, which is bound to ``local`` and accepts connections at ``streams``."""
        self._local[socket] = {"UDP": local, "TCP": local, "TLS": local, **(streams or {})}

    def __call__(self, signal: Input | Output) -> None:
        """Take note of what a machine is given, or asks for."""
        match signal:
            case DatagramReceived(socket=name, source=source, data=data):
                self._record("in", name, source, "UDP", data)
            case SendDatagram(socket=name, destination=destination, data=data):
                self._record("out", name, destination, "UDP", data)
            case StreamReceived(socket=name, source=source, transport=transport) if name in self._local:
                fresh = source, StreamFramer(opened_here=False)
                _, framer = self._connections.setdefault((name, signal.connection), fresh)
                for message in framer.feed(signal.data).messages:
                    self._record("in", name, source, transport, message)
            case StreamClosed(socket=name, connection=connection):
                self._connections.pop((name, connection), None)
            case SendOnStream(socket=name, target=target, data=data):
                # An open connection goes before the target, which is where another one would lead.
                peer, _ = self._connections.get((name, signal.connection or 0), (target.address, None))
                self._record("out", name, peer, target.transport, data)

    def _record(self, direction: Direction, name: str, peer: Address, transport: str, data: bytes) -> None:
        if name not in self._local or not data.strip(_KEEP_ALIVE) or data[0] in _STUN:
            return
        over: Transport = "UDP" if transport == "UDP" else "TLS" if transport == "TLS" else "TCP"
        local = self._local[name][over]
        source, destination = (peer, local) if direction == "in" else (local, peer)
        self._recorder.record(TraceEntry(wall_us(), source, destination, over, direction, data))
