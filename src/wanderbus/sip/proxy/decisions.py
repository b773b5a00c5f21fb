"""Decisions of the proxy about one request: who sent it, where it goes, and what it waits for (RFC 3261 16)."""

from __future__ import annotations

import msgspec

from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import Target, Transport
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.routing_script import (
    RoutingFailed,
)
from wanderbus.sip.transaction.transaction_signals import AckReceived, RequestReceived


class DialogSide(msgspec.Struct, frozen=True):
    """One side of a dialog at the proxy: its transport, and whether it reaches us by our domain name."""

    transport: Transport
    by_name: bool = False


class RequestArrived(msgspec.Struct, frozen=True):
    """A request without our own Routes; ``on_path``: a Route of ours led it here."""

    request: Request
    on_path: bool


class Aim(msgspec.Struct, frozen=True):
    """One target, and the ``connection`` that its device keeps open to us, if any (RFC 5626).

    ``destination`` overrides the address in ``uri``: the source address behind a NAT, or the server of another
    ``domain``, whose other servers are ``alternatives``. ``server`` is the name of the access server at ``uri``, ""
    for any other target; ``others`` are the servers to try after it, one after another.
    """

    uri: SIPUri
    connection: int | None = None
    destination: Target | None = None
    domain: str | None = None
    alternatives: tuple[Target, ...] = ()
    server: str = ""
    others: tuple[Aim, ...] = ()


class Attempt(msgspec.Struct, frozen=True):
    """One copy of a request for one destination.

    ``connection`` is the stream that the device keeps open, ``fixed`` excludes any other address, and ``server`` is the
    name of the access server, "" for any other target.
    """

    request: Request
    destination: Target
    connection: int | None = None
    fixed: bool = False
    server: str = ""


class Targets(msgspec.Struct, frozen=True):
    """Forward the request to all ``aims``, at least one, with a Record-Route to ``stay_on_path``, or by a ``relay``.

    With ``relay_optional`` it is sent without a relay if none takes the call: only its sender asks for it.
    """

    aims: tuple[Aim, ...]
    stay_on_path: bool
    relay: bool = False
    relay_optional: bool = False


class ProxyRefusal(msgspec.Struct, frozen=True):
    """Respond to the request here; ``failure`` is that of the script, if that is the cause."""

    status: int
    reason: str | None = None
    contacts: tuple[str, ...] = ()
    failure: RoutingFailed | None = None


class Unproved(msgspec.Struct, frozen=True):
    """The sender has not authenticated as a user of the domain: respond ``status``; ``challenges`` if 407."""

    status: int
    reason: str | None = None
    challenges: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


class Passage(msgspec.Struct, frozen=True):
    """A request on its way: as received but without our Routes, and with its destinations.

    ``sender`` is the authenticated user of our domain; "" unless the request goes to another domain.
    """

    received: RequestReceived
    came: RequestArrived
    targets: Targets
    sender: str = ""

    @property
    def transaction(self) -> str:
        """The server transaction of the request."""
        return self.received.transaction


class WaitingAck(msgspec.Struct, frozen=True):
    """An ACK that waits for the lookup of its next hop."""

    received: AckReceived
