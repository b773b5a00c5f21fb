"""Messages on links: the data half of the access server.

It passes messages between the data channels, the addresses of the original ECI and the broker, each time as one batch.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.access.device_session import DeviceSession
from wanderbus.access.device_signalling import DeviceSignalling
from wanderbus.access.federation_parts import FIRST_CIRCUIT
from wanderbus.access.federation_traffic import FederationTraffic
from wanderbus.access.light_door import is_light
from wanderbus.access.light_messages import LIGHT, LinkWanted
from wanderbus.access.light_messages import LightInput as ForLight
from wanderbus.access.light_messages import LightOutput as FromLight
from wanderbus.access.lone_handovers import LoneHandovers
from wanderbus.access.messages import BaselineOutput
from wanderbus.access.parts import BASELINE, TRANSPORTS
from wanderbus.access.session_table import SessionTable
from wanderbus.broker.core import Broker
from wanderbus.broker.fair_queue import BYTES_A_UNIT
from wanderbus.broker.messages import (
    Append,
    DevicesDoubted,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    SendOnLink,
    ServerAsked,
)
from wanderbus.broker.sessions.handover_messages import HandoverOutput
from wanderbus.broker.signals import BrokerOutput, ForFederation, ForInterest, ForLeaders
from wanderbus.composition import Composition
from wanderbus.datachannel import Transports
from wanderbus.detection import DetectorFailed
from wanderbus.hosts import network_of
from wanderbus.machine import CancelTimer, CloseStream, Input, Output, SendDatagram, SendOnStream, SetTimer
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.peers.owner_messages import OwnerWanted
from wanderbus.peers.parts import BROKER, OWNERS
from wanderbus.peers.server_traffic import ServerTraffic
from wanderbus.refusals import Limited
from wanderbus.transport import (
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    MessageReceived,
    SendMessage,
    TransportInput,
    TransportOutput,
)

CONSUMED_UNITS: Final = 64
"""Weight of processed messages after which the endpoints are informed, if nothing else is sent meanwhile."""

WINDOW_PARTS: Final = 4
"""Divisor of a connection's least window, which also bounds that weight, so that no sender waits for it."""


def consumed_units(rudp: RudpConfig, tcp: TcpConfig) -> float:
    """Return the weight of processed messages after which the endpoints are informed."""
    least_bytes = min(rudp.receive_window_frames * rudp.datagram_bytes_max, tcp.receive_window_bytes)
    return min(CONSUMED_UNITS, least_bytes / WINDOW_PARTS / BYTES_A_UNIT)


class LinkTraffic:
    """Routes the outputs of transports, broker and baseline to each other.

    :param consumed_units: weight of processed messages after which the endpoints are informed
    :param servers: messages between servers; None if this server is alone
    :param federation: messages between domains; None if there are no others
    :param lone: moves sessions to other domains, if this server is alone in its own
    :param has_light: whether there is a door for lightweight clients
    """

    def __init__(
        self,
        parts: Composition[Output],
        transports: Transports,
        broker: Broker,
        sessions: SessionTable,
        signalling: DeviceSignalling,
        consumed_units: float,
        servers: ServerTraffic | None = None,
        federation: FederationTraffic | None = None,
        lone: LoneHandovers | None = None,
        *,
        has_light: bool = False,
    ) -> None:
        self._parts = parts
        self._transports = transports
        self._broker = broker
        self._sessions = sessions
        self._signalling = signalling
        self._consumed_units = consumed_units
        self._servers = servers
        self._federation = federation
        self._lone = lone
        self._has_light = has_light

    def route_transports(self, outputs: list[TransportOutput], now: float) -> None:
        """Pass everything that arrived to the broker as one batch."""
        arrived: list[MessageArrived | LinkClosed] = []
        by_connection = self._sessions.by_connection
        for output in outputs:
            match output:
                case MessageReceived():
                    if session := by_connection.get(output.local_id):
                        arrived.append(MessageArrived(session.link, output.payload))
                case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer() | Limited():
                    self._parts.emit(output)
                case DetectorFailed():
                    self._parts.emit(output)
                case ConnectionFailed(local_id=connection, reason=reason):
                    arrived += self._on_connection_lost(connection, reason.replace("the other side", "the agent"))
                case ConnectionReset(local_id=connection):
                    arrived += self._on_connection_lost(connection, "the agent was restarted")
        self._parts.give(BROKER, arrived)

    def _on_connection_lost(self, connection: int, reason: str) -> list[LinkClosed]:
        """Set the media status to DISCONNECTED after a failure; the SIP status stays (SPEC C-14, G-02).

        The connection is forgotten, not probed: an agent that did not notice gets a reset for its next packet.
        """
        session = self._sessions.lost(connection)
        if session is None:
            return []
        self._parts.give(TRANSPORTS, session.channel.close())
        self._signalling.set_disconnected([session])
        return [LinkClosed(session.link, reason)]

    def route_broker(self, outputs: list[BrokerOutput], now: float) -> None:
        """Send the broker's messages as one batch; after that, end the sessions of dropped links."""
        for_transports: list[TransportInput] = []
        for_baseline: list[SendOnLink | LinkDropped] = []
        for_servers: list[SendOnLink | LinkDropped] = []
        for_light: list[ForLight] = []
        for_leaders: list[ForLeaders] = []
        for_interest: list[ForInterest] = []
        for_handovers: list[HandoverOutput] = []
        for_federation: list[SendOnLink | LinkDropped | ForFederation] = []
        dropped: list[tuple[DeviceSession, str]] = []
        by_link = self._sessions.by_link
        for output in outputs:
            match output:
                case SendOnLink() | LinkDropped() if self._has_light and is_light(output.link):
                    for_light.append(output)
                case SendOnLink():
                    if output.link < 0:
                        for_baseline.append(output)
                    elif output.link >= FIRST_CIRCUIT:
                        for_federation.append(output)
                    elif session := by_link.get(output.link):
                        if not session.held:
                            for_transports.append(SendMessage(session.channel.local, output.payload))
                        elif not session.withhold(output.payload):
                            dropped.append((session, "on hold, with too many waiting messages"))
                            reason = "session ended, its device was on hold and too much waited"
                            self._parts.emit(Limited("access_server.WITHHELD_MAX", session.user, reason))
                    else:
                        for_servers.append(output)
                case LinkDropped(link=link, reason=reason):
                    if link < 0:
                        for_baseline.append(output)
                    elif link >= FIRST_CIRCUIT:
                        for_federation.append(output)
                    elif session := by_link.get(link):
                        dropped.append((session, reason))
                    else:
                        for_servers.append(output)
                case Append():
                    self._parts.emit_first(output)
                case _ if isinstance(output, ForLeaders):
                    for_leaders.append(output)
                case _ if isinstance(output, ForInterest):
                    for_interest.append(output)
                case _ if isinstance(output, HandoverOutput):
                    for_handovers.append(output)
                case _ if isinstance(output, ForFederation):
                    for_federation.append(output)
                case DevicesDoubted(user=user):
                    for_transports += self._signalling.probes(user)
                    for_light += [output] * self._has_light
                case ServerAsked(link=link):
                    self._parts.emit(msgspec.structs.replace(output, sources=self._sources(link)))
                case _:
                    self._parts.emit(output)
        if closed := self._broker.take_closed_links():
            for_light += self._closed(closed)
        for_transports += self._consumed(for_light, is_due=bool(for_transports or for_light))
        self._parts.give(TRANSPORTS, for_transports)
        self._parts.give(BASELINE, for_baseline)
        self._parts.give(LIGHT, for_light)
        if self._servers is not None:
            self._servers.give_broker_outputs(for_servers, for_leaders, for_interest, for_handovers)
        if self._lone is not None:
            self._lone.give_broker_outputs(for_handovers)
        if self._federation is not None:
            self._federation.give_broker_outputs(for_federation)
        for session, reason in dropped:
            self._signalling.dropped(session, reason, now)

    def _closed(self, links: list[int]) -> list[LinkClosed]:
        """Set the media status of closed links to DISCONNECTED; return the ends of those of lightweight clients."""
        by_link = self._sessions.by_link
        self._signalling.set_disconnected([by_link[link] for link in links if link in by_link])
        return [LinkClosed(link, "the broker has closed the link") for link in links if is_light(link)]

    def _consumed(self, for_light: list[ForLight], *, is_due: bool) -> list[Consumed]:
        """Return how many messages the broker has processed, if that is due or enough are; add those of light."""
        if not is_due and self._broker.done_units < self._consumed_units:
            return []
        by_link = self._sessions.by_link
        done = self._broker.take_done()
        if self._servers is not None:
            self._servers.consumed(done)
        if self._has_light:
            for_light += [Consumed(link, count) for link, count in done.items() if is_light(link)]
        return [Consumed(by_link[link].channel.local, count) for link, count in done.items() if link in by_link]

    def _sources(self, link: int) -> tuple[str, ...]:
        """Return the network from which a link's data provably come, empty if unknown or if it is a relay's."""
        session = self._sessions.by_link.get(link)
        address = None if session is None else self._transports.proved_address(session.channel.local)
        return () if session is None or address is None or session.channel.relayed else (network_of(address[0]),)

    def route_baseline(self, outputs: list[BaselineOutput], now: float) -> None:
        """Pass the messages of addresses to the broker as one batch."""
        for_broker: list[LinkOpened | MessageArrived] = []
        for output in outputs:
            if isinstance(output, Input):
                for_broker.append(output)
            else:
                self._parts.emit(output)
        self._parts.give(BROKER, for_broker)

    def route_light(self, outputs: list[FromLight], now: float) -> None:
        """Pass links and messages of lightweight clients to the broker as one batch."""
        for_broker: list[LinkOpened | LinkClosed | MessageArrived] = []
        for output in outputs:
            match output:
                case LinkOpened() | LinkClosed() | MessageArrived():
                    for_broker.append(output)
                case LinkWanted(call=call, user=user, session=session, former=former):
                    self._parts.give(OWNERS, [OwnerWanted(call, user, session, former)])
                case _:
                    self._parts.emit(output)
        self._parts.give(BROKER, for_broker)
