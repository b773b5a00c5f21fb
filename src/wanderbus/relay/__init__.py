"""Media relay between two parties that cannot reach each other, controlled by the ``ng`` protocol (SPEC I).

::

    relay.step([DatagramReceived("ng", proxy, b"1 d7:command5:offer...")], now) -> [OpenPort(side, 30000), ...]
    relay.step([PortOpened(side, 30000), ...], now)                             -> [SendDatagram("ng", proxy, answer)]
    side.take(source, datagram, now)                                            -> the destination, or None
"""

from wanderbus.parameters.relay import RelayLimits
from wanderbus.relay.figures import Figures
from wanderbus.relay.interface import ClosePort, OpenPort, PortOpened, PortRefused
from wanderbus.relay.machine import NG_SOCKET, Relay
from wanderbus.relay.stream import Side

__all__ = [
    "NG_SOCKET",
    "ClosePort",
    "Figures",
    "OpenPort",
    "PortOpened",
    "PortRefused",
    "Relay",
    "RelayLimits",
    "Side",
]
