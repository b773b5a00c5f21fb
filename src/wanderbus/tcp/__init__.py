"""The data channel over TCP: messages exactly once and in order over TCP connections that break (SPEC F-07, X37).

It has the interface of reliable UDP; only :class:`OpenConnection` differs. It needs only the shared vocabulary::

    endpoint.step([SendMessage(local_id, b"...")], now) -> [SendOnStream(...), SetTimer(...)]
    endpoint.step([StreamReceived(...)], now)           -> [MessageReceived(local_id, b"..."), SendOnStream(...)]
"""

from wanderbus.parameters.transports import TcpConfig
from wanderbus.tcp.endpoint import Endpoint
from wanderbus.tcp.interface import Counters, OpenConnection, TcpTarget
from wanderbus.transport import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    FinishSending,
    MessageReceived,
    MovedHere,
    PeerFinished,
    Probe,
    ProbeAnswered,
    SendMessage,
)

__all__ = [
    "ChangePath",
    "CloseConnection",
    "ConnectionFailed",
    "ConnectionReset",
    "Consumed",
    "Counters",
    "Endpoint",
    "FinishSending",
    "MessageReceived",
    "MovedHere",
    "OpenConnection",
    "PeerFinished",
    "Probe",
    "ProbeAnswered",
    "SendMessage",
    "TcpConfig",
    "TcpTarget",
]
