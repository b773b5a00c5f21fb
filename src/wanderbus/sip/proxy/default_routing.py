"""Routing without a script of the operator (RFC 3261 16.5)."""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import target_of
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.routing_script import Forward, RoutingContext, Verdict


class DefaultRouting:
    """Default routing: every request goes to the user's contacts; the proxy leaves the path where possible (SPEC D-07,
    D-09).

    It stays if one side is behind NAT, which only the proxy can reach; if there is a relay, because a side may move
    behind NAT later; and if the two sides use different transports, because each may lack the other's.
    """

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        """Forward every request."""
        joins = _joins_transports(request, context.contacts)
        return Forward(stay_on_path=context.behind_nat or context.relay or joins)


class OnPathRouting:
    """Default routing, but the proxy stays on the path of every dialog.

    Most telephones need that over TCP and TLS: they accept no connections, or write the address of their present
    connection into Contact.
    """

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        """Forward every request, and stay on the path of its dialog."""
        return Forward(stay_on_path=True)


def _joins_transports(request: Request, contacts: Sequence[str]) -> bool:
    """Return whether ``request`` came over another transport than one of ``contacts`` uses."""
    came = request.vias[0].transport.upper()
    return any(target_of(SIPUri.parse(contact)).transport != came for contact in contacts)
