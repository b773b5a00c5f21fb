"""Contacts of devices behind NAT: their Contact carries the observed source address, so later requests have it too.

::

    Contact: <sip:alice@10.0.0.5:5060;alias=192.0.2.11~40001~1>

is the Contact that the proxy makes for a message from 192.0.2.11, port 40001, over UDP. So the proxy stores nothing
about a device behind NAT, neither for its registration nor for its dialogs. The format is that of Kamailio's
``add_contact_alias``: address, port, and 1 for UDP, 2 for TCP, 3 for TLS. The device itself never sees it.
"""

from __future__ import annotations

import ipaddress
from typing import Final, TypeVar

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_single_host
from wanderbus.machine import Address
from wanderbus.sip.message.headers import CONTACT_STAR, NameAddr
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import Target, Transport
from wanderbus.sip.message.uri import SIPUri, bracketed, parse_number
from wanderbus.sip.proxy.location import same_contact
from wanderbus.sip.transaction.transaction_signals import AckReceived, RequestReceived

_ALIAS: Final = "alias"
_NUMBERS: Final[dict[Transport, str]] = {"UDP": "1", "TCP": "2", "TLS": "3"}
_TRANSPORTS: Final = {number: transport for transport, number in _NUMBERS.items()}

_IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Message = TypeVar("_Message", Request, Response)


def came_straight(request: Request) -> bool:
    """Return whether ``request`` came directly from its sender: an earlier proxy handles the NAT before it."""
    return len(request.headers_all("Via")) == 1


def is_behind_nat(message: Request | Response, source: Address) -> bool:
    """Return whether ``message``, received directly from ``source``, names another IP address in its Contact.

    A Contact with a host name is not taken as behind NAT.

    Raises:
        SIPParseError: a Contact cannot be read.
    """
    return any(_is_elsewhere(contact.uri, source) for contact in message.contacts)


def marked(message: _Message, source: Address, transport: Transport) -> _Message:
    """Return ``message``, received directly from ``source``, with an alias in its Contact if it needs one.

    An alias written by the sender is removed.

    Raises:
        SIPParseError: a Contact cannot be read.
    """
    contacts = message.contacts
    following = [_marked(contact, source, transport) for contact in contacts]
    return message if following == contacts else message.replacing("Contact", ", ".join(map(str, following)))


def source_ip(message: Request | Response, source: Address) -> str:
    """Return the source IP address of ``message`` if it came directly from behind NAT, else "".

    Raises:
        SIPParseError: a Contact cannot be read.
    """
    straight = isinstance(message, Response) or came_straight(message)
    return source[0] if straight and is_behind_nat(message, source) else ""


def with_alias(received: RequestReceived | AckReceived) -> Request:
    """Return a request with the alias of its device, if it came directly from behind NAT.

    Raises:
        SIPParseError: a Contact cannot be read.
    """
    request = received.request
    return marked(request, received.source, received.transport) if came_straight(request) else request


def alias_target(uri: SIPUri) -> Target | None:
    """Return the target of the alias of ``uri``; None if there is none, or an unusable one."""
    pieces = (uri.param(_ALIAS) or "").split("~")
    if len(pieces) != 3:
        return None
    host, port, number = pieces
    ip = _ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    transport = _TRANSPORTS.get(number)
    if ip is None or transport is None or not is_single_host(str(ip)) or not _may_take(uri, transport):
        return None
    try:
        return Target(transport, (str(ip), parse_number(port, 65_535, "alias port"))) if port.strip("0") else None
    except SIPParseError:
        return None


def without_alias(uri: SIPUri) -> SIPUri:
    """Return ``uri`` as its device wrote it."""
    return uri.without_param(_ALIAS)


def is_same_device(uri: SIPUri, contact: str) -> bool:
    """Return whether ``uri`` and ``contact`` are one contact, whatever their aliases are."""
    return same_contact(without_alias(uri), without_alias(SIPUri.parse(contact)))


def redirected(uri: SIPUri, contact: SIPUri) -> SIPUri:
    """Return ``uri`` with the alias of ``contact``, or with none if that has none."""
    alias = contact.param(_ALIAS)
    return without_alias(uri) if alias is None else _with_alias(uri, alias)


def _marked(contact: NameAddr, source: Address, transport: Transport) -> NameAddr:
    if contact == CONTACT_STAR or not contact.uri.is_sip:
        return contact
    uri = without_alias(contact.uri)
    if _is_elsewhere(uri, source) and _may_take(uri, transport):
        uri = _with_alias(uri, f"{bracketed(source[0])}~{source[1]}~{_NUMBERS[transport]}")
    return msgspec.structs.replace(contact, uri=uri)


def _with_alias(uri: SIPUri, alias: str) -> SIPUri:
    bare = without_alias(uri)
    return msgspec.structs.replace(bare, params=(*bare.params, (_ALIAS, alias)))


def _is_elsewhere(uri: SIPUri, source: Address) -> bool:
    if not uri.is_sip:
        return False
    named, seen = _ip_address(uri.host), _ip_address(source[0])
    return named is not None and seen is not None and _folded(named) != _folded(seen)


def _may_take(uri: SIPUri, transport: Transport) -> bool:
    """Return whether ``uri`` may be reached over ``transport``: sips requires TLS (RFC 3261 26.2.2)."""
    return uri.scheme != "sips" or transport == "TLS"


def _ip_address(host: str) -> _IPAddress | None:
    """Parse an address; None for a name and for a link-local address."""
    try:
        return None if "%" in host else ipaddress.ip_address(host)
    except ValueError:
        return None


def _folded(ip: _IPAddress) -> _IPAddress:
    """Return the IPv4 address that a dual-stack socket shows as IPv6."""
    return (ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip
