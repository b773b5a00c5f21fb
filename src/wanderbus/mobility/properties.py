"""What a user agent must know before it starts (SPEC C-07, D-01, Q-02)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import Address
from wanderbus.sip.authentication.digest_values import SUPPORTED
from wanderbus.sip.message.targets import Target, Transport
from wanderbus.sip.message.uri import SIPUri, canonical_uri
from wanderbus.sip.transaction.flood_limits import FloodLimits

MIN_SE_S: Final = 90
"""The least session interval anybody may ask for, in seconds (RFC 4028 5)."""


class Properties(msgspec.Struct, frozen=True):
    """Who the user is, where the home domain's SIP server is, and how to prove it.

    Raises LocalProtocolError when the URI is missing or malformed: nothing can be registered without one.
    """

    uri: str
    """The user's address of record; ``alice@host`` and ``sip:alice@host`` both become the latter (SPEC X2)."""
    server: Address
    """Registrar and outbound proxy of the home domain."""
    username: str = ""
    """Name for digest authentication; the user part of ``uri`` when empty."""
    password: str | None = None
    """Secret for digest authentication; None answers no challenge."""
    instance: str | None = None
    """The device, as ``<urn:uuid:...>`` (RFC 5626 4.1); None sends no ``+sip.instance``."""
    register_expires_s: int = 60
    """Lifetime asked for a registration, in seconds; the registrar may grant another (SPEC X10)."""
    transport: Transport = "UDP"
    """What we speak with the server over, and ask others to speak with us over (SPEC C-11)."""
    server_name: str | None = None
    """The name in the server's TLS certificate; its address when None."""
    server_known_as: Address | None = None
    """What others know the server as, if that is not ``server``: a route that leads there leads to ``server``."""
    server_is_local: bool = False
    """Whether the server runs on this host, so that what comes over UDP from its address comes from it."""
    vouched_domains: tuple[str, ...] = ()
    """Other domains, for whose users the server vouches (RFC 3325)."""
    takes_offerless: bool = False
    """Whether an INVITE without offer is passed to the owner (``OfferWanted``); refused with 488 otherwise."""
    session_expires_s: int | None = None
    """Session interval we ask for, in seconds; None runs a session timer only if the peer asks (RFC 4028).

    The usual value is 1800 (RFC 4028 4).
    """
    min_se_s: int = 90
    """Shortest session interval we accept, in seconds, not below 90 (RFC 4028 5)."""
    digest_algorithms: tuple[str, ...] = SUPPORTED
    """Digests that we prove ourselves by; a challenge of another algorithm is not answered (RFC 8760 2.4)."""
    keep_alive_s: float | None = None
    """Most seconds between two keep-alives to the server, None sends none (RFC 5626 4.4; see :mod:`.flow`)."""
    flood: FloodLimits | None = None
    """How many requests one source may send to us, but for the server; None takes all (SPEC C-20)."""
    any_media: bool = False
    """Whether the owner is told of whatever media are offered, all of them in order (SPEC C-16).

    Otherwise the first data channel of this package alone, and an offer without one is refused.
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
            raise LocalProtocolError(f"the user URI {self.uri!r} names no user: write sip:user@domain")
        msgspec.structs.force_setattr(self, "uri", uri)
        if self.session_expires_s is not None and self.session_expires_s < self.min_se_s:
            raise LocalProtocolError(f"session_expires_s {self.session_expires_s} is below min_se_s {self.min_se_s}")
        if self.min_se_s < MIN_SE_S:
            raise LocalProtocolError(f"min_se_s {self.min_se_s} is below {MIN_SE_S}, the least of RFC 4028")
        if not self.username:
            msgspec.structs.force_setattr(self, "username", user)

    @property
    def server_target(self) -> Target:
        """The server with what it is spoken to over."""
        return Target(self.transport, self.server, self.server_name)

    @property
    def user(self) -> str:
        """The user part of the URI, as it stands in Contact and Request-URI."""
        user = SIPUri.parse(self.uri).user
        assert user is not None
        return user
