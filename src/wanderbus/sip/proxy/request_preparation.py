"""Preparation of a request: routes are read on arrival and written on departure (RFC 3261 16.4, 16.6).

Our Record-Route values carry a mark computed from a secret and the Call-ID. A Route with the correct mark proves that
the request belongs to a dialog that was routed through here. Such a request may be forwarded where no other may: the
proxy relays for its own dialogs only, and is no open relay.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_ip_address
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import Target, Transport, target_of, transport_params
from wanderbus.sip.message.uri import SIPUri, parse_number
from wanderbus.sip.proxy.bindings import Domain
from wanderbus.sip.proxy.decisions import DialogSide, RequestArrived

MAX_FORWARDS: Final = 70
"""Largest number of further hops (RFC 3261 16.6 item 3)."""

MAX_BREADTH: Final = 60
"""Default number of concurrent branches of a request over all proxies (RFC 5393 5.3.3)."""

BAD_GATEWAY: Final = 502
"""Status if the next hop of a request cannot be found."""

_MARK_PARAM: Final = "path"
_MARK_BYTES: Final = 8
_BREADTH_LARGEST: Final = 2**31 - 1
_DIALOG_MAKING: Final = frozenset({"INVITE", "SUBSCRIBE", "REFER"})
_NOT_IN_REQUEST_URI: Final = "method"


class PathMarks:
    """Makes and checks the Record-Route values of the proxy of ``domain``; ``key`` is its secret."""

    def __init__(self, domain: Domain, key: bytes) -> None:
        self._domain = domain
        self._key = key

    def record_routes(self, request: Request, came: DialogSide, leaves: DialogSide) -> tuple[str, ...]:
        """Return the values to put on ``request``, the first on top; none if it creates no dialog (RFC 3261 16.6 item
        4).

        There are two if its sides differ: each then returns over its own transport (RFC 5658), a device behind NAT on
        its open connection, and another domain by our name, which our certificate contains.
        """
        if request.method not in _DIALOG_MAKING:
            return ()
        safe = request.uri[:5].lower() == "sips:"
        return tuple(dict.fromkeys(self._record_route(request, side, safe=safe) for side in (leaves, came)))

    def _record_route(self, request: Request, side: DialogSide, *, safe: bool) -> str:
        transport: Transport = "TLS" if safe else side.transport
        address = self._domain.streams.get(transport, self._domain.address)
        host, port = (self._domain.name, None) if side.by_name else address
        over = () if safe else transport_params(transport)
        params = (*over, ("lr", None), (_MARK_PARAM, self._mark(request)))
        return f"<{SIPUri('sips' if safe else 'sip', None, host, port, params)}>"

    def is_genuine(self, uri: SIPUri, request: Request) -> bool:
        """Return whether ``uri`` is the value that we put into a Record-Route of the dialog of ``request``."""
        mark = (uri.param(_MARK_PARAM) or "").encode()
        return self._domain.serves(uri) and hmac.compare_digest(mark, self._mark(request).encode())

    def _mark(self, request: Request) -> str:
        return hmac.digest(self._key, b"path " + request.call_id.encode(), hashlib.sha256)[:_MARK_BYTES].hex()


def arrived(request: Request, domain: Domain, marks: PathMarks) -> RequestArrived:
    """Undo the rewriting of a strict router, and remove the Routes that name us (RFC 3261 16.4).

    Raises:
        SIPParseError: Request-URI or Route cannot be read.
    """
    on_path = False
    values = request.headers_all("Route")
    routes = [route.uri for route in request.routes]
    uri = SIPUri.parse_any(request.uri)
    if routes and uri.is_sip and marks.is_genuine(uri, request):
        on_path = True
        request = _retargeted(request, routes.pop())
        values.pop()
    while routes and domain.serves(routes[0]):
        on_path = on_path or marks.is_genuine(routes[0], request)
        del routes[0], values[0]
    return RequestArrived(_with_routes(request, values), on_path)


def leaving(request: Request, target: SIPUri, *, breadth: int | None = None) -> tuple[Request, SIPUri]:
    """Return ``request`` as sent to ``target``, and its next hop (RFC 3261 16.6 items 1 to 7).

    ``breadth`` is its share of the Max-Breadth, None for a request that cannot fork again.
    """
    hops = request.max_forwards
    left = MAX_FORWARDS if hops is None else min(hops, MAX_FORWARDS) - 1
    moved = msgspec.structs.replace(request, uri=str(target)).replacing("Max-Forwards", str(left))
    if breadth is not None:
        moved = moved.replacing("Max-Breadth", str(breadth))
    routes = moved.routes
    if not routes:
        return moved, target
    hop = routes[0].uri
    if hop.param("lr") is None:
        # A strict router requires its own URI as Request-URI, and the target as the last Route.
        moved = _retargeted(_with_routes(moved, [*moved.headers_all("Route")[1:], f"<{target}>"]), hop)
    return moved, hop


def recorded(request: Request, record_routes: Sequence[str]) -> Request:
    """Return ``request`` with ``record_routes`` above the present ones."""
    for value in reversed(record_routes):
        request = request.with_first("Record-Route", value)
    return request


def destination_of(hop: SIPUri) -> Target:
    """Return the destination for the next hop ``hop``.

    Raises:
        SIPParseError: the transport is not available, or the host is a name; only :mod:`.domain_routes` resolves names.
    """
    target = target_of(hop)
    if not is_ip_address(hop.host):
        raise SIPParseError("next hop: a host name, not an IP address", BAD_GATEWAY)
    return target


def loop_mark(request: Request) -> str:
    """Return a digest of the fields that route ``request``, a suffix of our branch (RFC 3261 16.6 item 8; no Via: RFC
    5393).
    """
    parts = [request.uri, request.call_id, str(request.cseq.number), request.from_.tag or "", request.to.tag or ""]
    parts += [str(route) for route in request.routes]
    return "." + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def shares_of_breadth(request: Request, branches: int) -> list[int] | None:
    """Return the Max-Breadth of each of ``branches``, None if there is too little for all (RFC 5393 5.3.3).

    Raises:
        SIPParseError: Max-Breadth is not a number.
    """
    text = request.header("Max-Breadth")
    breadth = MAX_BREADTH if text is None else parse_number(text, _BREADTH_LARGEST, "Max-Breadth")
    if breadth < branches:
        return None
    least, more = divmod(breadth, branches)
    return [least + (index < more) for index in range(branches)]


def _retargeted(request: Request, uri: SIPUri) -> Request:
    """Return ``request`` with ``uri`` as Request-URI, without the parts forbidden there (RFC 3261 19.1.1, table 1)."""
    params = tuple(param for param in uri.params if param[0].lower() != _NOT_IN_REQUEST_URI)
    return msgspec.structs.replace(request, uri=str(msgspec.structs.replace(uri, params=params, headers=())))


def _with_routes(request: Request, values: Sequence[str]) -> Request:
    return request.replacing("Route", ", ".join(values)) if values else request.without("Route")
