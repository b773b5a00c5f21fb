"""Properties that a user agent needs before it starts (SPEC C-07, D-01, Q-02)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import Address
from wanderbus.sip.authentication.digest_values import SUPPORTED, Secret
from wanderbus.sip.message.targets import Target, Transport
from wanderbus.sip.message.uri import SIPUri, canonical_uri

MIN_SE_S: Final = 90
"""Least session interval that anybody may request, in seconds (RFC 4028 5)."""


class Properties(msgspec.Struct, frozen=True):
    """Identity and password of the user, and the SIP server of the home domain.

    Raises LocalProtocolError if the URI is missing or malformed: registration requires it.
    """

    uri: str
    """The user's address of record; ``alice@host`` and ``sip:alice@host`` both become the latter (SPEC X2)."""
    server: Address
    """Registrar and outbound proxy of the home domain."""
    username: str = ""
    """Name for digest authentication; the user part of ``uri`` when empty."""
    password: Secret | None = None
    """Secret for digest authentication; None answers no challenge."""
    instance: str | None = None
    """The device, as ``<urn:uuid:...>`` (RFC 5626 4.1); None sends no ``+sip.instance``."""
    register_expires_s: int = 60
    """Requested lifetime of a registration, in seconds; the registrar may grant another (SPEC X10)."""
    transport: Transport = "UDP"
    """Transport to the server, and in our Contact (SPEC C-11)."""
    server_name: str | None = None
    """The name in the server's TLS certificate; its address if None."""
    server_known_as: Address | None = None
    """Address of the server as known to others, if that is not ``server``: a route to it leads to ``server``."""
    reached_at: tuple[str, ...] = ()
    """SIP URIs of the user at a server that belongs to it, one for each transport; without one, its own contact."""
    server_is_local: bool = False
    """True if the server runs on this host, so that UDP datagrams from its address are really from it."""
    vouched_domains: tuple[str, ...] = ()
    """Other domains for whose users the server vouches (RFC 3325)."""
    takes_offerless: bool = False
    """True if an INVITE without offer is passed to the owner (``OfferWanted``); refused with 488 otherwise."""
    session_expires_s: int | None = None
    """Requested session interval, in seconds; None uses a session timer only if the peer requests it (RFC 4028).

    The usual value is 1800 (RFC 4028 4).
    """
    min_se_s: int = 90
    """Shortest session interval we accept, in seconds, not below 90 (RFC 4028 5)."""
    digest_algorithms: tuple[str, ...] = SUPPORTED
    """Accepted digest algorithms; a challenge of another algorithm is not answered (RFC 8760 2.4)."""
    keep_alive_s: float | None = None
    """Longest interval between two keep-alives to the server, None sends none (RFC 5626 4.4; see :mod:`.flow`)."""
    any_media: bool = False
    """True if offers of any media are passed to the owner, all lines in order (SPEC C-16).

    Otherwise only the first data channel of this package is; an offer without one is refused.
    """

    def __repr__(self) -> str:
        return f"Properties(uri={self.uri!r}, ...)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("uri", self.uri)]

    def __post_init__(self) -> None:
        try:
            uri = canonical_uri(self.uri)
        except SIPParseError as error:
            raise LocalProtocolError(
                f"the user URI {self.uri!r} is not of the form sip:user@domain: {error}"
            ) from error
        user = SIPUri.parse(uri).user
        if user is None:
            raise LocalProtocolError(f"the user URI {self.uri!r} has no user: write sip:user@domain")
        msgspec.structs.force_setattr(self, "uri", uri)
        if self.session_expires_s is not None and self.session_expires_s < self.min_se_s:
            raise LocalProtocolError(f"session_expires_s {self.session_expires_s} is below min_se_s {self.min_se_s}")
        if self.min_se_s < MIN_SE_S:
            raise LocalProtocolError(f"min_se_s {self.min_se_s} is below {MIN_SE_S}, the minimum of RFC 4028")
        if not self.username:
            msgspec.structs.force_setattr(self, "username", user)

    @property
    def server_target(self) -> Target:
        """The server's address with its transport."""
        return Target(self.transport, self.server, self.server_name)

    @property
    def user(self) -> str:
        """The user part of the URI, for Contact and Request-URI."""
        user = SIPUri.parse(self.uri).user
        assert user is not None
        return user
