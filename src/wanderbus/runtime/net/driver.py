"""Driver that runs a machine on asyncio, with UDP sockets, TCP and TLS connections, and one heap of timers.

All inputs since the last turn of the loop are one batch: a burst of datagrams, or several requests of an application
in one turn, cost one ``step``. While datagrams arrive singly, the driver passes each to the machine at once and does
not check for more, since either would add latency.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import socket
import ssl
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from wanderbus.hosts import is_ip_address
from wanderbus.machine import (
    Address,
    CancelTimer,
    ClockRead,
    CloseStream,
    DatagramReceived,
    Input,
    Machine,
    Output,
    SendDatagram,
    SendOnStream,
    SetTimer,
    StreamClosed,
    TimerFired,
)
from wanderbus.parameters.transports import StreamLimits
from wanderbus.runtime.system_random import wall_us

if TYPE_CHECKING:
    from wanderbus.runtime.net.streams import Streams

Receive = Callable[[int], tuple[bytes, Any]]
"""Method of a socket that returns a datagram of at most so many bytes, and its sender."""

_log = logging.getLogger("wanderbus.driver")

RECEIVE_BUFFER_BYTES: Final = 4 * 2**20
_DATAGRAMS_A_TURN: Final = 128
_BYTES_A_TURN: Final = 2**18
"""Bytes after which no more datagrams are read in a turn: the largest take longest, and other sockets wait."""
_DATAGRAM_BYTES: Final = 65_536

_HEAP_RATIO_MAX: Final = 1.5
"""Heap entries for each timer that is set: a cancelled timer stays in the heap until its time, maybe for minutes."""
_HEAP_SLACK: Final = 64

_EARLY_S: Final = 0.6e-3
"""Most time by which an alarm is early: uvloop's clock has steps of a millisecond, and it rounds to the nearest."""


class Driver:
    """Runs one machine; passes its reports, in order, to ``on_report``.

    The driver calls ``tap`` with each input before the machine gets it, and with each output before it is performed.
    An exception from the machine is a bug: it ends the driver and goes to ``on_fault``. Without ``on_fault`` the loop
    logs it, the batch is lost, and the machine goes on.
    """

    def __init__(
        self,
        machine: Machine,
        on_report: Callable[[Output], None],
        *,
        wall_clock: bool = False,
        tap: Callable[[Input | Output], None] | None = None,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        self.machine = machine
        self.unsent = 0
        """Datagrams not sent: to a host name, or refused by the operating system. They count as lost on the way."""
        self._on_report = on_report
        self._wall_clock = wall_clock
        self._tap = tap
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[str, socket.socket] = {}
        self._most: dict[str, int] = {}
        """Datagrams to read in one turn, by socket."""
        self._bursts = False
        """True if more than one datagram was waiting at the last read."""
        self._streams: dict[str, Streams] = {}
        self._stream_hosts: dict[str, str] = {}
        self._is_path_narrow = False
        self._stream_numbers = itertools.count(1)
        self._inbox: list[Input] = []
        self._turn: asyncio.Handle | None = None
        self._deadlines: dict[Hashable, float] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._heap_count = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None
        self._now = 0.0
        """The machine's time: that of the loop, or of a timer that fired a little early."""
        self._closed = False
        self._performers: dict[type[Output], Callable[[Any], None]] = {
            SendDatagram: self._send,
            SendOnStream: self._send_on_stream,
            CloseStream: self._close_stream,
            SetTimer: self._set_timer,
            CancelTimer: self._cancel_timer,
        }

    def bind(
        self,
        addresses: Mapping[str, Address],
        *,
        datagrams_a_turn: int = _DATAGRAMS_A_TURN,
        waited_s_max: float | None = None,
    ) -> dict[str, Address]:
        """Open these UDP sockets by name, then close those that they replace; return the addresses in use.

        No more than ``datagrams_a_turn`` of each are read before other sockets have their turn. Datagrams that waited
        longer than ``waited_s_max`` are discarded.

        Raises ``OSError`` if an address cannot be bound, ``OverflowError`` for an invalid port; the previous sockets
        then stay open.
        """
        opened: dict[str, socket.socket] = {}
        try:
            for name, address in addresses.items():
                opened[name] = open_udp(address)
        except BaseException:
            for each in opened.values():
                each.close()
            raise
        for name, each in opened.items():
            receive = each.recvfrom if waited_s_max is None else _fresh(each, waited_s_max)
            self._use(name, each, receive, datagrams_a_turn)
        return {name: each.getsockname()[:2] for name, each in opened.items()}

    def bind_multicast(self, name: str, group: Address, *, host: str, interface: str | None, ttl: int) -> Address:
        """Join ``group`` with the UDP socket ``name``; return the address in use.

        For the parameters see :func:`~wanderbus.runtime.net.multicast.open_multicast`. Raises ``OSError`` if one of
        them cannot be used.
        """
        # Only domains with multicast load it.
        from wanderbus.runtime.net.multicast import open_multicast

        opened = open_multicast(group, host=host, interface=interface, ttl=ttl)
        self._use(name, opened, opened.recvfrom, _DATAGRAMS_A_TURN)
        return group

    def bind_streams(
        self,
        name: str,
        addresses: Mapping[str, Address],
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        peer_tls: ssl.SSLContext | None = None,
        local_host: str | None = None,
        limits: StreamLimits | None = None,
    ) -> dict[str, Address]:
        """Accept connections for the socket ``name`` at ``addresses``, by transport, and let it open connections.

        Closes the previous connections. Returns the addresses in use; for the other parameters see :class:`Streams`.
        Raises ``OSError`` if an address cannot be bound; the previous connections then stay open.
        """
        # Programs that use no TCP do not load connections and TLS.
        from wanderbus.runtime.net.streams import Streams

        fresh = Streams(
            name,
            self.feed,
            self._stream_numbers,
            server_tls=server_tls,
            client_tls=client_tls,
            peer_tls=peer_tls,
            local_host=local_host,
            limits=limits,
            note=self._on_report,
        )
        if self._is_path_narrow:
            fresh.shorten_segments()
        bound = fresh.listen(addresses)
        if (old := self._streams.get(name)) is not None:
            old.close()
        self._streams[name] = fresh
        return bound

    def allow_streams(self, name: str, *, local_host: str) -> None:
        """Let the socket ``name`` open TCP connections from ``local_host``; nothing is loaded before the first.

        The first one means that long packets seem not to arrive: all sockets use short segments from then on.
        """
        self._stream_hosts[name] = local_host
        if (old := self._streams.pop(name, None)) is not None:
            old.close()

    def feed(self, *inputs: Input) -> None:
        """Pass ``inputs`` to the machine in this turn of the loop, together with other inputs that arrive."""
        self._inbox += inputs
        if self._turn is None and not self._closed:
            self._turn = self._loop.call_soon(self._run)

    def take(self, *inputs: Input) -> None:
        """Pass ``inputs`` to the machine at once, with all that has arrived: for inputs from another thread."""
        self._inbox += inputs
        self._run()

    def perform(self, outputs: Sequence[Output]) -> None:
        """Perform the outputs of the machine."""
        performers, report, tap = self._performers, self._on_report, self._tap
        for output in outputs:
            if tap is not None:
                tap(output)
            performers.get(type(output), report)(output)
        self._set_alarm()

    def close(self) -> None:
        """Close every socket and connection and discard every timer; the machine is not called again."""
        self._closed = True
        for streams in self._streams.values():
            streams.close()
        for name in list(self._sockets):
            self._unbind(name)
        for handle in (self._turn, self._alarm):
            if handle is not None:
                handle.cancel()

    def _use(self, name: str, opened: socket.socket, receive: Receive, datagrams_a_turn: int) -> None:
        """Read from and send with an open socket, in place of an earlier one."""
        self._unbind(name)
        self._sockets[name] = opened
        self._most[name] = datagrams_a_turn
        self._loop.add_reader(opened, self._readable, name, receive)

    def _unbind(self, name: str) -> None:
        if (old := self._sockets.pop(name, None)) is not None:
            self._loop.remove_reader(old)
            old.close()

    def _readable(self, name: str, receive: Receive) -> None:
        """Read what has arrived: one datagram at a time while they arrive singly, else a batch."""
        alone = not self._bursts
        if alone and self._receive(name, receive, 1):
            self._run()
        count = self._receive(name, receive, self._most[name])
        self._bursts = count > (0 if alone else 1)
        if count:
            self._run()

    def _receive(self, name: str, receive: Receive, most: int) -> int:
        """Put up to ``most`` datagrams that have arrived into the inbox; return their number."""
        count = size = 0
        for _ in range(most):
            if size >= _BYTES_A_TURN:
                break
            try:
                data, address = receive(_DATAGRAM_BYTES)
            except BlockingIOError:
                break
            except OSError:
                # An ICMP error for an earlier datagram: the machine's timers notice that loss.
                continue
            self._inbox.append(DatagramReceived(name, address[:2], data))
            size += len(data)
            count += 1
        return count

    def _run(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        if self._closed or not self._inbox:
            return
        batch, self._inbox = self._inbox, []
        if self._wall_clock:
            batch.insert(0, ClockRead(wall_us()))
        if self._tap is not None:
            for given in batch:
                self._tap(given)
        try:
            outputs = self.machine.step(batch, self._read_clock())
        except Exception as error:
            if self._on_fault is None:
                raise
            self.close()
            self._on_fault(error)
        else:
            self.perform(outputs)

    def _send(self, wanted: SendDatagram) -> None:
        sender = self._sockets.get(wanted.socket)
        if sender is None:
            return
        if not is_ip_address(wanted.destination[0]):
            # The operating system would look the name up and block the loop.
            self._note_unsent(wanted.destination, "not an IP address")
            return
        try:
            sender.sendto(wanted.data, wanted.destination)
        except OSError as error:
            self._note_unsent(wanted.destination, error)

    def _note_unsent(self, destination: Address, reason: object) -> None:
        self.unsent += 1
        _log.debug("datagram to %s:%s not sent: %s", *destination, reason)

    def _send_on_stream(self, wanted: SendOnStream) -> None:
        if wanted.socket in self._stream_hosts and wanted.socket not in self._streams:
            self._is_path_narrow = True
            for each in self._streams.values():
                each.shorten_segments()
            self.bind_streams(wanted.socket, {}, local_host=self._stream_hosts[wanted.socket])
        streams = self._streams.get(wanted.socket)
        if streams is None:
            number = next(self._stream_numbers)
            self.feed(StreamClosed(wanted.socket, number, "there are no streams here", wanted.target))
        else:
            streams.send(wanted)

    def _close_stream(self, wanted: CloseStream) -> None:
        if wanted.socket in self._streams:
            self._streams[wanted.socket].close_connection(wanted.connection)

    def _set_timer(self, wanted: SetTimer) -> None:
        self._deadlines[wanted.key] = wanted.at
        self._heap_count += 1
        heapq.heappush(self._heap, (wanted.at, self._heap_count, wanted.key))
        if len(self._heap) > _HEAP_RATIO_MAX * len(self._deadlines) + _HEAP_SLACK:
            self._heap = [entry for entry in self._heap if self._deadlines.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _cancel_timer(self, wanted: CancelTimer) -> None:
        self._deadlines.pop(wanted.key, None)

    def _set_alarm(self) -> None:
        while self._heap and self._deadlines.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        due = self._heap[0][0] if self._heap else None
        if due == self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = due
        if due is not None and not self._closed:
            self._alarm = self._loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._alarm = self._alarm_at = None
        until = self._read_clock() + _EARLY_S
        fired: list[Input] = []
        while self._heap and self._heap[0][0] <= until:
            at, _, key = heapq.heappop(self._heap)
            if self._deadlines.get(key) == at:
                del self._deadlines[key]
                fired.append(TimerFired(key))
                # A machine that found its timer early would set it again, and the alarm would ring until it is due.
                self._now = max(self._now, at)
        if fired:
            self.feed(*fired)
        self._set_alarm()

    def _read_clock(self) -> float:
        self._now = max(self._now, self._loop.time())
        return self._now


class Unmade:
    """Placeholder machine of a driver until its sockets are bound and the real machine knows its addresses.

    No input arrives before the loop's next turn.
    """

    def step(self, inputs: object, now: float) -> list[Output]:
        """Do nothing."""
        return []


def _fresh(source: socket.socket, waited_s_max: float) -> Receive:
    # Agents do not load what only servers use.
    from wanderbus.runtime.net.fresh_datagrams import FreshDatagrams

    return FreshDatagrams(source, waited_s_max).receive


def open_udp(address: Address) -> socket.socket:
    """Return a bound non-blocking socket; ``OSError`` or ``OverflowError`` if ``address`` cannot be bound."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        opened.bind(address)
    except BaseException:
        opened.close()
        raise
    return opened
