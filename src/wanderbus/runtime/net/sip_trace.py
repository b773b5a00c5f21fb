"""Recorder of a SIP trace: the messages that drivers send and receive (SPEC U-06).

::

    recorder = SipRecorder.open(path)
    tap = recorder.tap()
    driver = Driver(machine, on_report, tap=tap)
    tap.trace("sip", driver.bind({"sip": address})["sip"])
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
from wanderbus.sip.trace.trace import Trace
from wanderbus.sip.trace.trace_entry import Direction, TraceEntry

_log = logging.getLogger("wanderbus.sip_trace")

_KEEP_ALIVE: Final = b"\r\n\0"
_STUN: Final = (0, 1)


class SipRecorder:
    """The SIP trace of one process: in memory, and in a file if one is given."""

    def __init__(self, trace: Trace, file: TraceFile | None = None) -> None:
        self.trace = trace
        self._file = file

    @classmethod
    def open(cls, path: Path) -> SipRecorder:
        """Return a recorder that writes to the file at ``path``; :class:`ConfigurationError` if it cannot write."""
        return cls(Trace(), TraceFile.open(path))

    def tap(self) -> SipTap:
        """Return a tap for one driver."""
        return SipTap(self)

    def record(self, entry: TraceEntry) -> None:
        """Record one message; if the disk fails, the file ends and the process goes on."""
        entry = self.trace.add(entry)
        if self._file is None:
            return
        try:
            self._file.write(entry)
        except (OSError, ConfigurationError) as error:
            _log.warning("cannot write the SIP trace %s: %s; tracing to it stops", self._file.path, error)
            self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class SipTap:
    """Tap of a driver: records the SIP messages of the sockets named by :meth:`trace`.

    A stream is split into messages first, because a secret could extend over two pieces. Keep-alives are not recorded.
    A sent message is recorded when the machine requests it. A connection opened by this process is recorded with the
    port it listens on.
    """

    def __init__(self, recorder: SipRecorder) -> None:
        self._recorder = recorder
        self._local: dict[str, dict[str, Address]] = {}
        self._connections: dict[tuple[str, int], tuple[Address, StreamFramer]] = {}

    def trace(self, socket: str, local: Address, streams: Mapping[str, Address] | None = None) -> None:
        """Trace the socket named ``socket``, which is bound to ``local`` and accepts connections at ``streams``."""
        self._local[socket] = {"UDP": local, "TCP": local, "TLS": local, **(streams or {})}

    def __call__(self, signal: Input | Output) -> None:
        """Record the SIP message in an input or output of a machine, if there is one."""
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
                # The address of an open connection precedes the target, which is where a new connection would lead.
                peer, _ = self._connections.get((name, signal.connection or 0), (target.address, None))
                self._record("out", name, peer, target.transport, data)

    def _record(self, direction: Direction, name: str, peer: Address, transport: str, data: bytes) -> None:
        if name not in self._local or not data.strip(_KEEP_ALIVE) or data[0] in _STUN:
            return
        over: Transport = "UDP" if transport == "UDP" else "TLS" if transport == "TLS" else "TCP"
        local = self._local[name][over]
        source, destination = (peer, local) if direction == "in" else (local, peer)
        self._recorder.record(TraceEntry(wall_us(), source, destination, over, direction, data))
