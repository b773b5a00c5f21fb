"""Hosts as addresses name them: literal ones or by name, single or many, and to whom an address belongs.

Nothing is looked up. Answers that are asked for with every datagram are remembered.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

_HOSTS_REMEMBERED: Final = 4_096

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Hosts of IPv4 as a translator shows them to IPv6 (RFC 6052 2.1)."""


@functools.lru_cache(maxsize=_HOSTS_REMEMBERED)
def is_ip_address(host: str) -> bool:
    """Tell whether ``host``, without brackets, is an IP address and no name; one of a link may name its interface."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def as_received(host: str) -> str:
    """Return the address ``host`` in the form in which a socket shows it as a source; a name as it is."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str((ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip)


def is_single_host(host: str) -> bool:
    """Tell whether ``host`` may be one host, as any name: it is no multicast, broadcast or unspecified address."""
    ip = _folded(host)
    return ip is None or not (ip.is_multicast or ip.is_unspecified or (ip.version == 4 and ip.is_reserved))


def is_loopback(host: str) -> bool:
    """Tell whether ``host`` is an address at which a host reaches itself alone."""
    ip = _folded(host)
    return ip is not None and ip.is_loopback


def is_link_local(host: str) -> bool:
    """Tell whether ``host`` is an address that holds on one link alone."""
    ip = _folded(host)
    return ip is not None and ip.is_link_local


@functools.lru_cache(maxsize=_HOSTS_REMEMBERED)
def canonical(host: str) -> str:
    """Return the one form in which ``host`` can be compared, without brackets."""
    ip = _folded(host)
    return host.lower() if ip is None else str(ip)


def may_be_peer(host: str, here: str) -> bool:
    """Tell whether who is bound to ``here`` may have a peer at ``host``: on loopback only where we are there too."""
    ours = _folded(here)
    return not is_loopback(host) or ours is None or ours.is_loopback or ours.is_unspecified


@functools.lru_cache(maxsize=_HOSTS_REMEMBERED)
def network_of(host: str) -> str:
    """Return what one sender can have many addresses of: the /64 of an IPv6 address; an IPv4 address or name itself."""
    ip = _folded(host.partition("%")[0])
    if ip is None:
        return host.lower()
    return str(ip) if ip.version == 4 else str(ipaddress.IPv6Network((ip, 64), strict=False))


def _folded(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address ``host``, bracketed or not, as IPv4 where it is that in IPv6; None for a name."""
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        return ipaddress.IPv4Address(ip.packed[-4:]) if ip in _TRANSLATED else ip.ipv4_mapped or ip
    return ip
