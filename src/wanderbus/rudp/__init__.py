"""Reliable UDP: messages exactly once and in order over datagrams, sealed, with failure detection (SPEC F, F-09).

It needs only the shared vocabulary, so it can be used without SIP and without a broker::

    endpoint.step([SendMessage(local_id, b"...")], now) -> [SendDatagram(...), SetTimer(...)]
    endpoint.step([DatagramReceived(...)], now)         -> [MessageReceived(local_id, b"..."), SendDatagram(...)]
"""

from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.endpoint import Endpoint
from wanderbus.rudp.interface import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReport,
    ConnectionRequest,
    ConnectionReset,
    Consumed,
    Counters,
    FinishSending,
    GapDetected,
    MessageReceived,
    MovedHere,
    OpenConnection,
    PathChanged,
    PeerFinished,
    Probe,
    ProbeAnswered,
    SendMessage,
    ValidatePath,
)

__all__ = [
    "ChangePath",
    "CloseConnection",
    "ConnectionFailed",
    "ConnectionReport",
    "ConnectionRequest",
    "ConnectionReset",
    "Consumed",
    "Counters",
    "Endpoint",
    "FinishSending",
    "GapDetected",
    "MessageReceived",
    "MovedHere",
    "OpenConnection",
    "PathChanged",
    "PeerFinished",
    "Probe",
    "ProbeAnswered",
    "RudpConfig",
    "SendMessage",
    "ValidatePath",
]
