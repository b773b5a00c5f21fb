"""What a user agent must know before it starts (SPEC C-07, D-01, Q-02)."""

from __future__ import annotations

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.machine import Address
from wanderbus.sip.uri import SIPUri, canonical_uri


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
        if not self.username:
            msgspec.structs.force_setattr(self, "username", user)

    @property
    def user(self) -> str:
        """The user part of the URI, as it stands in Contact and Request-URI."""
        user = SIPUri.parse(self.uri).user
        assert user is not None
        return user
