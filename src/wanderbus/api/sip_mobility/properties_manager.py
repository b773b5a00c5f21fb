"""Stores and checks all properties of SIPMobility, including the local media (SPEC C-07, C-16 to C-18)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from wanderbus.api.sip_mobility.helper import SIPHelper
from wanderbus.api.sip_mobility.media import SDPMediaDescriptionData, description_of
from wanderbus.api.sip_mobility.ports import Transport
from wanderbus.errors import ConfigurationError, LocalProtocolError
from wanderbus.runtime.net.addresses import POLL_S
from wanderbus.sip.message.sdp import MEDIA_MAX, MediaDescription

PORT_MAX: Final = 65_535


class SIPMobilityProperties(msgspec.Struct, frozen=True, kw_only=True):
    """Initial properties of an application; every value is checked before anything is sent."""

    uri: str
    """The user, ``sip:name@domain`` or ``name@domain`` (SPEC D-01)."""
    server: str = "127.0.0.1:5060"
    """Registrar and outbound proxy of the home domain, ``host:port`` (SPEC D-02)."""
    username: str = ""
    """Name for digest authentication; the user part of ``uri`` when empty."""
    password: str | None = None
    """Secret for digest authentication; None answers no challenge."""
    instance: str | None = None
    """The device, as ``<urn:uuid:...>`` (RFC 5626 4.1); None creates a new one."""
    register_expires_s: int = 60
    """Requested lifetime of a registration, in seconds; refreshed at a third of the granted one (SPEC D-03)."""
    local_address: str | None = None
    """IP address of the device; None follows the address that routes to the server (SPEC D-05)."""
    sip_port: int = 0
    """Port for SIP; 0 selects a free one, and another after each move."""
    transport: Transport = "UDP"
    """Transport of SIP; with ``TCP`` we listen over UDP too (SPEC C-11)."""
    session_expires_s: int | None = None
    """Requested session interval, in seconds, usually 1800; None requests none (RFC 4028)."""
    keep_alive_s: float | None = None
    """Longest interval between two keep-alives for a NAT, in seconds; None sends none (RFC 5626 4.4)."""
    poll_s: float = POLL_S
    """Polling interval of the local address if the kernel reports no changes, in seconds."""
    wait_s_max: float = 10.0
    """Timeout of :meth:`SIPMobility.register` if the registrar does not respond, in seconds."""
    media: tuple[SDPMediaDescriptionData, ...] = ()
    """The initial local media (SPEC C-17)."""


class PropertiesManager:
    """The properties of one SIPMobility; ConfigurationError from the constructor names the wrong one.

    ``changed`` is called after each change of the local media; its result completes when every session has them (SPEC
    C-18).
    """

    def __init__(
        self, helper: SIPHelper, properties: SIPMobilityProperties, changed: Callable[[], Awaitable[None]]
    ) -> None:
        self._helper = helper
        self._changed = changed
        self._check_numbers(properties)
        self.stack = helper.properties(
            properties.uri,
            properties.server,
            username=properties.username,
            password=properties.password,
            instance=properties.instance,
            register_expires_s=properties.register_expires_s,
            transport=properties.transport,
            session_expires_s=properties.session_expires_s,
            keep_alive_s=properties.keep_alive_s,
        )
        """The properties in the SIP stack's form."""
        address = None if properties.local_address is None else helper.check_address(properties.local_address)
        self.values = msgspec.structs.replace(properties, uri=self.stack.uri, local_address=address)
        """The given properties, checked and converted."""
        self._media: list[SDPMediaDescriptionData] = []
        for data in properties.media:
            self._add(data)

    async def initialise(self) -> None:
        """Open the SIP stack with these properties; ConfigurationError or Unreachable on failure."""
        self.stack = await self._helper.located(self.stack, self.values.wait_s_max)
        self._helper.open(self.stack, self.values.local_address, self.values.sip_port)

    async def terminate(self) -> None:
        """End sessions and registration, and close the SIP stack."""
        await self._helper.close()

    # The local media -------------------------------------------------------------------------------------------------

    def add_media_description(self, data: SDPMediaDescriptionData) -> Awaitable[None]:
        """Offer ``data`` too, in every session; ConfigurationError if it is invalid, or exists already."""
        self._add(data)
        return self._changed()

    def media_descriptions(self) -> tuple[SDPMediaDescriptionData, ...]:
        """Return the local media, in the order in which they were added."""
        return tuple(self._media)

    def remove_media_description(self, data: SDPMediaDescriptionData) -> Awaitable[None]:
        """Stop offering ``data``; LocalProtocolError if it is not there, or the last one of active sessions."""
        index = self._index(data)
        if len(self._media) == 1 and self._helper.sessions:
            raise LocalProtocolError("a session needs at least one medium: terminate the sessions first")
        del self._media[index]
        return self._changed()

    def change_media_description(
        self, former: SDPMediaDescriptionData, data: SDPMediaDescriptionData
    ) -> Awaitable[None]:
        """Replace ``former`` by ``data``; errors as for adding and removing."""
        index = self._index(former)
        self._check(data, replaced=former)
        self._media[index] = data
        return self._changed()

    def description(self) -> MediaDescription:
        """Return the local media for the present address of the device; LocalProtocolError if there are none."""
        if not self._media:
            raise LocalProtocolError("there is nothing to offer: add a media description first")
        return description_of(self._media, self._helper.contact[0])

    def _add(self, data: SDPMediaDescriptionData) -> None:
        self._check(data)
        if len(self._media) >= MEDIA_MAX:
            raise ConfigurationError(f"more than {MEDIA_MAX} media descriptions")
        self._media.append(data)

    def _index(self, data: SDPMediaDescriptionData) -> int:
        if data not in self._media:
            raise LocalProtocolError(f"there is no local medium {data}")
        return self._media.index(data)

    def _check(self, data: SDPMediaDescriptionData, replaced: SDPMediaDescriptionData | None = None) -> None:
        if data != replaced and data in self._media:
            raise ConfigurationError(f"the medium exists already: {data}")
        if not 0 < data.port <= PORT_MAX:
            raise ConfigurationError(f"{data.port} is not a valid port: use 1 to {PORT_MAX}")
        address = "0.0.0.0" if data.address is None else self._helper.check_address(data.address)
        try:
            self._helper.describe("-", 0, 0, description_of([data], address))
        except LocalProtocolError as error:
            raise ConfigurationError(f"{data} cannot be written as SDP: {error}") from None

    def _check_numbers(self, properties: SIPMobilityProperties) -> None:
        if not 0 <= properties.sip_port <= PORT_MAX:
            raise ConfigurationError(f"{properties.sip_port} is not a valid port: use 0 to {PORT_MAX}")
        if properties.transport not in ("UDP", "TCP"):
            raise ConfigurationError(f"unsupported transport {properties.transport!r} (expected UDP or TCP)")
        if properties.poll_s <= 0 or properties.wait_s_max <= 0:
            raise ConfigurationError("poll_s and wait_s_max must be greater than 0 seconds")
