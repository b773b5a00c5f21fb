"""Data channel of an agent: its transports, and the choice of its path through firewalls (SPEC F-01, I-08).

Paths are tried in order of preference, and each has a timeout for the first acknowledgement::

    udp ──nothing arrives──▶ udp-relay ──▶ tcp ──▶ tcp-relay ──▶ none is left: the transport's own timeout decides
     ▲                                                │
     └── the device moves, or the connection fails    └── works: kept until its connection fails or the device moves

On a path without ``relay`` the SIP proxy decides about a relay, and uses one for devices behind NAT; with ``relay`` the
agent requests one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus.client.machine.identity import parties_of
from wanderbus.client.machine.messages import AgentProperties, DataPathKind, DataTransport
from wanderbus.datachannel import DataChannel, Protocol, Transports, protocol_over
from wanderbus.detection import MakeDetector
from wanderbus.machine import Address, RandomSource
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.transport import ConnectionRequest

UDP_PATIENCE_S: Final = 2.0
"""Least timeout of the first acknowledgement over UDP: a new connection sends at 0, 0.25, 0.75 and 1.75 s."""

TCP_PATIENCE_S: Final = 4.0
"""The same over TCP with TLS, which takes four round trips; the system retransmits a lost SYN after 1 s and 3 s."""

UDP_ROUND_TRIPS: Final = 3
TCP_ROUND_TRIPS: Final = 6
"""Least timeout in round trips of SIP."""

PATIENCE_S_MAX: Final = 8.0
"""Most timeout: a lost INVITE makes the round trip seem longer than it is."""

REMEMBERED_S: Final = 600.0
"""Time for which the path that worked at an address of the device is remembered."""

ADDRESSES_MAX: Final = 32
"""Most addresses of the device for which a path is remembered."""

_PATH_NAMES: Final[dict[DataPathKind, str]] = {
    "udp": "UDP",
    "udp-relay": "UDP by relay",
    "tcp": "TCP",
    "tcp-relay": "TCP by relay",
}
"""Names of the paths, for people."""


def allowed_paths(transport: DataTransport, paths: Sequence[DataPathKind]) -> tuple[DataPathKind, ...]:
    """Return those of ``paths`` that use ``transport``."""
    return tuple([path for path in paths if transport in ("AUTO", path.partition("-")[0].upper())])


class PathChoice:
    """The path in use, and the paths that failed since the device has the address ``host``.

    :param paths: the allowed paths, in the order in which they are tried
    """

    def __init__(self, paths: Sequence[DataPathKind], host: str) -> None:
        if not paths:
            raise ValueError("paths is empty; allow at least one")
        self._paths = tuple(paths)
        self._host = host
        self._index = 0
        self._memory: dict[str, tuple[DataPathKind, float]] = {}
        """By address of the device: the path that worked there, and the time at which it began to work."""
        self._failed_paths: set[tuple[str, Address]] = set()
        self._tried: tuple[str, Address] | None = None
        self._patience_s = 0.0
        self.why = ""
        """Reason for leaving the previous path, for people."""

    @property
    def path(self) -> DataPathKind:
        """Return the path in use, or to be offered next."""
        return self._paths[self._index]

    @property
    def over_tcp(self) -> bool:
        """Return whether the path uses TCP."""
        return self.path.startswith("tcp")

    @property
    def relayed(self) -> bool:
        """Return whether the agent requests a relay."""
        return self.path.endswith("relay")

    @property
    def name(self) -> str:
        """Return the name of the path in use, for people."""
        return _PATH_NAMES[self.path]

    @property
    def reason(self) -> str:
        """Return the path in use and why no better one is, for people; empty for the best path."""
        return f"data channel over {self.name}: {self.why}" if self._index else ""

    @property
    def is_unproven_relay(self) -> bool:
        """Return whether the path requests a relay and did not work at this address yet: there may be no relay."""
        known = self._memory.get(self._host)
        return self.relayed and (known is None or known[0] != self.path)

    @property
    def on_trial(self) -> bool:
        """Return whether the path was negotiated and nothing was acknowledged on it yet."""
        return self._tried is not None

    def moved(self, host: str, now: float) -> None:
        """Restart with the best path, or with the one that worked at ``host`` recently."""
        self._host = host
        self._begin(now)

    def agreed(self, remote: Address, round_trip_s: float, now: float) -> float | None:
        """Start a trial of the path, which leads to ``remote``; return its deadline.

        Return None if nothing arrived at this address before, as when there is no relay: the path has failed already.
        """
        least_s, trips = (TCP_PATIENCE_S, TCP_ROUND_TRIPS) if self.over_tcp else (UDP_PATIENCE_S, UDP_ROUND_TRIPS)
        self._patience_s = min(max(least_s, trips * round_trip_s), PATIENCE_S_MAX)
        self._tried = self.path.partition("-")[0], remote
        return None if self._tried in self._failed_paths else now + self._patience_s

    def succeeded(self, now: float) -> None:
        """Keep the path in use: something arrived by it."""
        self._tried = None
        self._failed_paths.clear()
        if self._index == 0:
            self._memory.pop(self._host, None)
        else:
            self._remember(now)

    def failed(self, reason: str = "") -> bool:
        """Switch to the next path, since nothing arrived by this one, or for ``reason``; return whether there is one.

        If there is none, keep this one, and forget which path worked at this address.
        """
        if self._tried is not None:
            self._failed_paths.add(self._tried)
            self._tried = None
        if self._index + 1 == len(self._paths):
            self._memory.pop(self._host, None)
            return False
        self.why = f"{reason or f'nothing arrived within {self._patience_s:.1f} s'} over {self.name}"
        self._index += 1
        return True

    def refused(self, now: float) -> bool:
        """Switch to another path after a SIP refusal; False for the best path, which all accept."""
        if self._index == 0:
            return False
        if not self.failed("refused"):
            self._begin(now)
        return True

    def connection_failed(self, now: float) -> None:
        """Keep a path that worked recently; restart with the best one if none did."""
        self._tried = None
        self._begin(now)

    def _begin(self, now: float) -> None:
        known = self._memory.get(self._host)
        is_recent = known is not None and now - known[1] < REMEMBERED_S
        self._index = self._paths.index(known[0]) if known is not None and is_recent else 0
        self._tried = None
        self._failed_paths.clear()

    def _remember(self, now: float) -> None:
        """Remember the path that works at this address; if there are too many, forget the oldest address."""
        known = self._memory.pop(self._host, None)
        learnt_at = known[1] if known is not None and known[0] == self.path else now
        self._memory[self._host] = self.path, learnt_at
        if len(self._memory) > ADDRESSES_MAX:
            del self._memory[next(iter(self._memory))]


class DataPath:
    """The channel, the transports that carry it, and the choice between them."""

    def __init__(
        self,
        properties: AgentProperties,
        random: RandomSource,
        host: str,
        *,
        rudp: RudpConfig | None,
        tcp: TcpConfig | None,
        make_detector: MakeDetector | None = None,
    ) -> None:
        self.transports = Transports(
            random,
            rudp_config=msgspec.structs.replace(
                rudp or RudpConfig(), keepalive_s=properties.keepalive_s, ack_delay_s=0.0
            ),
            tcp_config=msgspec.structs.replace(tcp or TcpConfig(), keepalive_s=properties.keepalive_s),
            reset_key=random.token(32),
            make_detector=make_detector,
        )
        self.choice = PathChoice(allowed_paths(properties.data_transport, properties.data_paths), host)
        self._encryption = properties.encryption
        self.channel = DataChannel(
            self.transports, parties_of(properties, ""), encryption=properties.encryption, protocol=self._protocol
        )
        self._offered_at: float | None = None
        """Time at which the agent's open offer was sent, None if there is none."""

    @property
    def sends_to(self) -> Address | None:
        """Return the destination address of data, from the broker's description; None until it is negotiated."""
        remote = self.channel.remote
        return None if remote is None else remote.address

    def prepare_offer(self, now: float) -> list[ConnectionRequest]:
        """Prepare the channel for an offer by the chosen path, which is sent now; return inputs of the transports."""
        self._offered_at = now
        return self.channel.use(self._protocol, relayed=self.choice.relayed)

    def place(self, address: Address) -> str:
        """Return the place of this device at ``address``, for another device to send; "" if it needs a new offer."""
        place = self.channel.place(address) if self._protocol == self.channel.protocol else None
        return "" if place is None else place.text

    def begin_trial(self, now: float) -> float | None:
        """Start to wait for an acknowledgement on the negotiated path; return the deadline.

        Return None if the path leads to an address that acknowledged nothing before.
        """
        assert self.sends_to is not None, "a trial begins with an agreement"
        round_trip_s = 0.0 if self._offered_at is None else now - self._offered_at
        self._offered_at = None
        return self.choice.agreed(self.sends_to, round_trip_s, now)

    def is_reached(self) -> bool:
        """Return whether the broker acknowledged something on the current path."""
        return self.transports.reached(self.channel.local)

    @property
    def _protocol(self) -> Protocol:
        return protocol_over("TCP" if self.choice.over_tcp else "UDP", encryption=self._encryption)
