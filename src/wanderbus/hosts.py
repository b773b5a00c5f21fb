"""Domain of a user, and kinds of hosts in addresses: literal or by name, one host or many, loopback or not.

Nothing is looked up. Results that are needed for each datagram are cached.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

_HOSTS_REMEMBERED: Final = 4_096

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Prefix of IPv4 addresses that a translator maps into IPv6 (RFC 6052 2.1)."""


def domain_of(user: str) -> str:
    """Return the domain of a user, whose canonical URI this is; "" if it has none."""
    return user.rpartition("@")[2] if "@" in user else ""


@functools.lru_cache(maxsize=_HOSTS_REMEMBERED)
def is_ip_address(host: str) -> bool:
    """Return whether ``host``, without brackets, is an IP address; a link-local one may name its interface."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def place_in(text: str) -> tuple[str, int] | None:
    """Return IP address and port in ``host:port``, with brackets around IPv6 or not; None if it is something else."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and int(port) < 2**16
    return (host, int(port)) if is_port and is_ip_address(host) else None


def as_received(host: str) -> str:
    """Return the address ``host`` in the form in which a socket shows it as a source; a name is unchanged."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str((ip.ipv4_mapped or ip) if isinstance(ip, ipaddress.IPv6Address) else ip)


def is_single_host(host: str) -> bool:
    """Return whether ``host`` may be a single host: a name, or no multicast, broadcast or unspecified address."""
    ip = _folded(host)
    return ip is None or not (ip.is_multicast or ip.is_unspecified or (ip.version == 4 and ip.is_reserved))


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is a loopback address."""
    ip = _folded(host)
    return ip is not None and ip.is_loopback


def is_link_local(host: str) -> bool:
    """Return whether ``host`` is a link-local address."""
    ip = _folded(host)
    return ip is not None and ip.is_link_local


@functools.lru_cache(maxsize=_HOSTS_REMEMBERED)
def canonical(host: str) -> str:
    """Return the canonical form of ``host`` for comparisons, without brackets."""
    ip = _folded(host)
    return host.lower() if ip is None else str(ip)


def may_be_peer(host: str, here: str) -> bool:
    """Return whether a socket bound to ``here`` may have a peer at ``host``: on loopback only if it is there too."""
    ours = _folded(here)
    return not is_loopback(host) or ours is None or ours.is_loopback or ours.is_unspecified


@functools.lru_cache(maxsize=_HOSTS_REMEMBERED)
def network_of(host: str) -> str:
    """Return the unit that limits count as one sender: the /64 of an IPv6 address; an IPv4 address or name itself."""
    ip = _folded(host.partition("%")[0])
    if ip is None:
        return host.lower()
    return str(ip) if ip.version == 4 else str(ipaddress.IPv6Network((ip, 64), strict=False))


def _folded(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address ``host``, bracketed or not, with IPv4 in IPv6 as IPv4; None for a name."""
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        return ipaddress.IPv4Address(ip.packed[-4:]) if ip in _TRANSLATED else ip.ipv4_mapped or ip
    return ip
