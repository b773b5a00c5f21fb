"""Data channels of the sessions with devices: their parties, and their descriptions in SDP."""

from __future__ import annotations

from wanderbus.datachannel import (
    RELAY,
    ChannelEnd,
    DataChannel,
    Parties,
    Transports,
    channel_secret,
    protocol_over,
)
from wanderbus.datachannel.description import Place
from wanderbus.machine import Address
from wanderbus.mobility.properties import Properties
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.uri import SIPUri
from wanderbus.transport import ConnectionRequest


class SessionChannels:
    """Makes, describes and reads the data channels of one access server; for the parameters see there."""

    def __init__(
        self,
        properties: Properties,
        transports: Transports,
        authenticator: Authenticator | None,
        *,
        data_address: Address,
        stream_address: Address,
        host: str | None,
        encryption: bool,
    ) -> None:
        self._properties = properties
        self._transports = transports
        self._authenticator = authenticator
        self._data_address = data_address
        self._stream_address = stream_address
        self._host = host or data_address[0]
        self._encryption = encryption

    def make(self, session: str, user: str, media: MediaDescription | None = None) -> DataChannel:
        """Return a new data channel for a session, over the transport of ``media``, our part of it before a restart."""
        uri, ours = SIPUri.parse(user), SIPUri.parse(self._properties.uri)
        is_ours = uri.host == ours.host
        ha1 = self._authenticator.secret_of(uri.user) if self._authenticator and uri.user and is_ours else None
        parties = Parties(
            role="broker",
            agent=user,
            broker=self._properties.uri,
            dialog=session,
            secret=None if ha1 is None else channel_secret(ha1),
            # Between domains everything must use TLS, or the server could not vouch for its users.
            over_tls=self._properties.transport == "TLS" or (self._properties.server_is_local and not is_ours),
        )
        return DataChannel(
            self._transports,
            parties,
            encryption=self._encryption,
            protocol=protocol_over(media.protocol if media else "UDP", encryption=self._encryption),
            relayed=media is not None and media.attribute(RELAY) is not None,
        )

    def describe(self, channel: DataChannel) -> MediaDescription:
        """Return our SDP description of ``channel``."""
        return channel.describe(self._data_address if channel.protocol == "UDP" else self._stream_address)

    def read(self, channel: DataChannel, media: MediaDescription) -> ChannelEnd:
        """Return the agent's end of ``channel``; :class:`RemoteProtocolError` if its description is refused."""
        return channel.read(media, self._host)

    def locate(self, channel: DataChannel, place: Place) -> list[ConnectionRequest]:
        """Return the inputs that lead ``channel`` to the place that another device of the user has sent.

        :raises SIPParseError: the place is refused
        """
        return channel.on_place(place, self._host)
