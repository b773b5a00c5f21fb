"""Data channels over TCP: their endpoint and openings. :mod:`.transports` loads it if it is needed."""

from __future__ import annotations

from typing import Literal

from wanderbus.datachannel.description import STREAM_SOCKET, ChannelEnd
from wanderbus.datachannel.trust import Parties, hkdf
from wanderbus.detection import MakeDetector
from wanderbus.machine import RandomSource
from wanderbus.parameters.transports import TcpConfig
from wanderbus.tcp.endpoint import Endpoint
from wanderbus.tcp.interface import OpenConnection, TcpTarget


class TcpCarrier:
    """TCP of one host; for the parameters see :class:`~wanderbus.datachannel.transports.Transports`."""

    def __init__(
        self, random: RandomSource, config: TcpConfig, fingerprint: bytes, make_detector: MakeDetector | None
    ) -> None:
        self.endpoint = Endpoint(
            random, config, socket=STREAM_SOCKET, fingerprint=fingerprint, make_detector=make_detector
        )

    def opening(self, local: int, remote: ChannelEnd, parties: Parties) -> OpenConnection:
        """Return the input that opens the connection from ``local`` to ``remote``; the agent connects."""
        transport: Literal["TCP", "TLS"] = "TLS" if remote.sealed else "TCP"
        target = None
        if parties.role == "agent":
            target = TcpTarget(transport, remote.address, remote.fingerprint or None)
        secret = hkdf(parties.secret or b"", parties.context(local, remote.connection))
        return OpenConnection(local, remote.connection, remote.generation, secret, target)
