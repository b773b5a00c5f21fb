"""Bindings of a registrar, its domain, and the reports of their changes (RFC 3261 10)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wanderbus.machine import Address, Output
from wanderbus.sip.message.targets import PORTS
from wanderbus.sip.message.uri import SIPUri


class Domain(msgspec.Struct, frozen=True):
    """The domain of a server: its ``name`` (lower case) and the ``address`` it listens on.

    ``streams`` are its further addresses by transport (TCP, TLS).
    """

    name: str
    address: Address
    streams: Mapping[str, Address] = {}

    @property
    def transports(self) -> frozenset[str]:
        """Transports that the server can send over."""
        return frozenset({"UDP", *self.streams})

    def is_ours(self, address: Address) -> bool:
        """Return whether the server listens at ``address`` over any transport."""
        return address == self.address or address in self.streams.values()

    def serves(self, uri: SIPUri) -> bool:
        """Return whether this server resolves ``uri``: our name or address, with no other port than ours (RFC 3261
        16.4).
        """
        if not uri.is_sip:
            return False
        if uri.host == self.name:
            return uri.port is None or any(uri.port == port for _, port in (self.address, *self.streams.values()))
        return self.is_ours((uri.host, uri.port or PORTS["TLS" if uri.scheme == "sips" else "UDP"]))

    def address_of_record(self, user: str) -> str:
        """Return the canonical address of record of ``user`` in this domain (SPEC A-05)."""
        return f"sip:{user}@{self.name}"


class BindingChanged(Output, frozen=True):
    """The set of contacts of ``aor`` changed; ``contacts`` is the new set, in the order to be tried."""

    aor: str
    contacts: tuple[str, ...]


class Binding(msgspec.Struct, frozen=True):
    """One contact of an address of record.

    ``contact`` is a SIP URI; ``expires_at`` is in monotonic seconds; ``call_id`` and ``cseq`` identify the last
    REGISTER that changed it (RFC 3261 10.3); ``instance`` is the device's ``+sip.instance`` (RFC 5626 4.1) or None;
    ``q`` is the preference from 0 to 1; ``connection`` is the stream that its device keeps open to us (a flow, RFC
    5626), None if the proxy must connect to the contact.
    """

    contact: str
    expires_at: float
    call_id: str
    cseq: int
    instance: str | None = None
    q: float = 1.0
    connection: int | None = None


class BindingsWritten(Output, frozen=True):
    """The bindings of ``aor`` were written or refreshed; ``bindings`` are all of them, newest first.

    Store them if they are to survive a restart, see :meth:`LocationService.snapshot`.
    """

    aor: str
    bindings: tuple[Binding, ...]


class ExpiryPolicy(msgspec.Struct, frozen=True):
    """Lifetimes of a binding in seconds: shortest granted, longest granted, and the default."""

    min_s: int = 5
    max_s: int = 3_600
    default_s: int = 300
