"""Trust in keys: the MAC with which each side signs its end of a data channel, and its check (DESIGN 6.5).

User and server already share a secret, HA1 of digest authentication. A *channel secret* is derived from it, and proves
in both directions that nobody replaced a public key or a fingerprint on the way. The MAC does not cover addresses,
because relays rewrite them. MAC and channel secret need only HMAC-SHA256 and SHA-256 of the standard library.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final, Literal

import msgspec

from wanderbus.datachannel.description import ChannelEnd, Place
from wanderbus.errors import SIPParseError

Role = Literal["agent", "broker"]

_MAC_LABEL: Final = "wanderbus data channel end 1"
_PLACE_LABEL: Final = "wanderbus data channel place 1"
_CONNECTION_LABEL: Final = "wanderbus data channel connection 1"
_SECRET_LABEL: Final = b"wanderbus channel secret 1"


class Parties(msgspec.Struct, frozen=True):
    """Parties of a data channel, as both sides know them independently of SDP.

    ``secret`` is the channel secret, None if this side does not know the password. It is not part of the
    representation.
    """

    role: Role
    """Own role."""
    agent: str
    """Address of record of the user."""
    broker: str
    """Address of record of the broker."""
    dialog: str
    """Call-ID of the SIP session."""
    secret: bytes | None
    over_tls: bool = False
    """True if this side is set to use TLS for its signalling."""

    def __repr__(self) -> str:
        return f"Parties(role={self.role!r}, agent={self.agent!r}, broker={self.broker!r}, dialog={self.dialog!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("role", self.role), ("agent", self.agent), ("broker", self.broker), ("dialog", self.dialog)]

    @property
    def peer(self) -> Role:
        """Return the role of the peer."""
        return "broker" if self.role == "agent" else "agent"

    def mac(self, end: ChannelEnd, role: Role) -> bytes:
        """Return the MAC of ``end`` for ``role``; b"" without a secret."""
        if self.secret is None:
            return b""
        shown = "plain" if not end.sealed else (end.key or end.fingerprint).hex()
        covered = (role, end.protocol, f"{end.connection:016x}", str(end.generation), shown)
        return hmac.digest(self.secret, self._bound_to(_MAC_LABEL, *covered), hashlib.sha256)

    def signed(self, end: ChannelEnd) -> ChannelEnd:
        """Return our ``end`` with its MAC, if there is a secret."""
        return msgspec.structs.replace(end, mac=self.mac(end, self.role))

    def signed_place(self, place: Place) -> Place:
        """Return our device's ``place`` with its MAC, if there is a secret."""
        return msgspec.structs.replace(place, mac=self._place_mac(place))

    def check_place(self, place: Place) -> None:
        """Raise :class:`SIPParseError` (488) unless its device has signed ``place``, as :meth:`check` does."""
        if self.secret is None:
            if not self.over_tls:
                raise _unacceptable("the place of a device cannot be checked without a password: use TLS")
        elif not hmac.compare_digest(place.mac, self._place_mac(place)):
            raise _unacceptable("the signature of a device's place is wrong (wanderbus-place)")

    def _place_mac(self, place: Place) -> bytes:
        if self.secret is None:
            return b""
        return hmac.digest(self.secret, self._bound_to(_PLACE_LABEL, *place.words), hashlib.sha256)

    def context(self, ours: int, theirs: int) -> bytes:
        """Return the context that the keys of one connection are bound to, the same on both sides."""
        ids = (ours, theirs) if self.role == "agent" else (theirs, ours)
        return self._bound_to(_CONNECTION_LABEL, *(f"{each:016x}" for each in ids))

    def check(self, end: ChannelEnd, *, encryption: bool) -> None:
        """Accept ``end`` as the peer's, or raise :class:`SIPParseError` (488); it must be at least as secure as ours.

        A side with the channel secret accepts only an end with a valid MAC. A side without it cannot check a MAC, and
        accepts an end only if the signalling is protected against changes.
        """
        if end.sealed != encryption:
            encrypting, plain = (self.peer, self.role) if end.sealed else (self.role, self.peer)
            raise _unacceptable(
                f"the {encrypting} encrypts and the {plain} does not: give --no-encryption to both, or to neither"
            )
        if end.protocol != "UDP":
            _check_setup(end, self.peer)
        if self.secret is None:
            if not self.over_tls:
                raise _unacceptable("the key cannot be checked without a password: use TLS for signalling")
        elif not end.mac:
            raise _unacceptable("the data channel is not signed (wanderbus-mac)")
        elif not hmac.compare_digest(end.mac, self.mac(end, self.peer)):
            raise _unacceptable("the signature of the data channel is wrong (wanderbus-mac)")

    def _bound_to(self, label: str, *fields: str) -> bytes:
        """Join label and fields with line breaks; no field contains one: URIs, a Call-ID, tokens and digits."""
        return "\n".join((label, self.agent, self.broker, self.dialog, *fields)).encode()


def channel_secret(ha1: str) -> bytes:
    """Return the secret between a user and the server, from HA1 under SHA-256 (RFC 7616 3.4.2)."""
    return hkdf(ha1.encode(), _SECRET_LABEL)


def hkdf(key: bytes, info: bytes) -> bytes:
    """Return 32 bytes by HKDF-SHA256 without salt (RFC 5869 2.2, 2.3)."""
    extracted = hmac.digest(bytes(32), key, hashlib.sha256)
    return hmac.digest(extracted, info + b"\x01", hashlib.sha256)


def _check_setup(end: ChannelEnd, peer: Role) -> None:
    """Check the TCP roles: the agent connects, since it may be behind NAT; the broker shows its certificate."""
    if end.setup not in ("actpass", "active" if peer == "agent" else "passive"):
        raise _unacceptable("the agent must be active (opens the TCP connection) and the broker passive")
    if peer == "broker" and end.protocol == "TCP/TLS" and not end.fingerprint:
        raise _unacceptable("the broker's fingerprint is missing")


def _unacceptable(message: str) -> SIPParseError:
    return SIPParseError(message, 488)
