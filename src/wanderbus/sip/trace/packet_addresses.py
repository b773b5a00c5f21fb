"""IP addresses of exported messages.

Capture formats have no host names: a name becomes an address of 192.0.2.0/24, which is reserved for documentation (RFC
5737), the same one for the same name. Of two addresses of different families both become IPv6 (RFC 4291 2.5.5.2).
"""

from __future__ import annotations

import ipaddress
import zlib

from wanderbus.sip.trace.trace_entry import TraceEntry

Pair = tuple[ipaddress.IPv4Address, ipaddress.IPv4Address] | tuple[ipaddress.IPv6Address, ipaddress.IPv6Address]


def address_pair(entry: TraceEntry) -> Pair:
    """Return source and destination of ``entry``, both of one family."""
    source, destination = _address(entry.source[0]), _address(entry.destination[0])
    if isinstance(source, ipaddress.IPv4Address) and isinstance(destination, ipaddress.IPv4Address):
        return source, destination
    return _mapped(source), _mapped(destination)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ipaddress.IPv4Address(f"192.0.2.{1 + zlib.crc32(host.encode(errors='replace')) % 254}")


def _mapped(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv6Address:
    if isinstance(address, ipaddress.IPv6Address):
        return address
    return ipaddress.IPv6Address(b"\x00" * 10 + b"\xff\xff" + address.packed)
