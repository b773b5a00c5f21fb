"""Reliable UDP and TCP combined into one machine, so that the owner need not know a data channel's transport (F-01).

::

    datagrams of ``data``              ──▶ rudp.Endpoint ──▶
    streams of ``data-stream``         ──▶ tcp.Endpoint  ──▶   their outputs, with timers under those two names
    requests, by the connection's id   ──▶ either
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, cast

from wanderbus import rudp, tcp
from wanderbus.datachannel.description import Protocol
from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.transport import CloseConnection

DATA_SOCKET: Final = "data"
STREAM_SOCKET: Final = "data-stream"


class Transports:
    """Both endpoints of one host.

    :param reset_key: secret that lets a restarted endpoint prove its resets (DESIGN 6.3)
    :param fingerprint: SHA-256 of the certificate shown to peers that connect by TLS
    """

    def __init__(
        self,
        random: RandomSource,
        *,
        rudp_config: rudp.RudpConfig,
        tcp_config: tcp.TcpConfig,
        reset_key: bytes,
        fingerprint: bytes = b"",
    ) -> None:
        self.random = random
        self.fingerprint = fingerprint
        self.udp = rudp.Endpoint(random, rudp_config, socket=DATA_SOCKET, reset_key=reset_key)
        self.tcp = tcp.Endpoint(random, tcp_config, socket=STREAM_SOCKET, fingerprint=fingerprint)
        self._over_tcp: set[int] = set()
        """Ids of TCP connections; all other ids belong to reliable UDP."""

    def allocate(self, protocol: Protocol) -> int:
        """Return a fresh local id for a connection over ``protocol``."""
        if protocol == "UDP":
            return self.udp.allocate()
        local_id = self.tcp.allocate()
        self._over_tcp.add(local_id)
        return local_id

    def all_confirmed(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged everything that was sent or queued; True for an unknown id."""
        return (self.tcp if local_id in self._over_tcp else self.udp).all_confirmed(local_id)

    def reached(self, local_id: int) -> bool:
        """Return whether the path in use works, as far as is known; False for an unknown id."""
        return (self.tcp if local_id in self._over_tcp else self.udp).reached(local_id)

    def proved_address(self, local_id: int) -> Address | None:
        """Return the address that the peer has proved; None before."""
        return (self.tcp if local_id in self._over_tcp else self.udp).proved_address(local_id)

    def takes(self, given: Input) -> bool:
        """Return whether ``given`` is input from the network for one of the endpoints."""
        match given:
            case DatagramReceived(socket=name):
                return name == DATA_SOCKET
            case StreamReceived(socket=name) | StreamClosed(socket=name) | TimerFired(key=(name, _)):
                return name in (DATA_SOCKET, STREAM_SOCKET)
        return False

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``; each endpoint gets its own inputs in order.

        :raises LimitExceeded: a message to send is too long; nothing of its endpoint's batch was done.
        """
        over_udp: list[Input] = []
        over_tcp: list[Input] = []
        for given in inputs:
            kind = type(given)
            if kind is DatagramReceived or kind is rudp.OpenConnection:
                over_udp.append(given)
            elif kind is StreamReceived or kind is StreamClosed or kind is tcp.OpenConnection:
                over_tcp.append(given)
            elif isinstance(given, TimerFired):
                scope, key = cast(tuple[str, Hashable], given.key)
                (over_udp if scope == DATA_SOCKET else over_tcp).append(TimerFired(key))
            else:
                local_id: int = given.local_id  # type: ignore[attr-defined]
                (over_tcp if local_id in self._over_tcp else over_udp).append(given)
                if kind is CloseConnection:
                    self._over_tcp.discard(local_id)
        outputs: list[Output] = []
        if over_udp:
            _scope(outputs, DATA_SOCKET, self.udp.step(over_udp, now))
        if over_tcp:
            _scope(outputs, STREAM_SOCKET, self.tcp.step(over_tcp, now))
        return outputs


def _scope(outputs: list[Output], scope: str, more: Iterable[Output]) -> None:
    """Add ``more``, with its timers under ``scope``; few outputs are timers, so each is checked only once."""
    for output in more:
        if isinstance(output, SetTimer):
            outputs.append(SetTimer((scope, output.key), output.at))
        elif isinstance(output, CancelTimer):
            outputs.append(CancelTimer((scope, output.key)))
        else:
            outputs.append(output)
