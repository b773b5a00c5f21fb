"""Sockets of IPv4 multicast groups (RFC 1112)."""

from __future__ import annotations

import errno
import os
import socket
import struct

from wanderbus.machine import Address
from wanderbus.runtime.net.driver import RECEIVE_BUFFER_BYTES

_MEMBERSHIP = struct.Struct("4s4si")
"""``struct ip_mreqn``: group, address of the interface, number of the interface (0: by the address)."""


def open_multicast(group: Address, *, host: str, interface: str | None = None, ttl: int = 1) -> socket.socket:
    """Return a non-blocking socket that has joined ``group``, and sends to it.

    Sockets of other servers on this machine may have the same group and port; each gets every datagram.

    :param host: local address whose interface is used, unless ``interface`` names one
    :param ttl: routers that a datagram passes, plus 1; 0 keeps it on this machine
    :raises OSError: the group, the host or the interface cannot be used
    """
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        # Bound to the group, the socket gets nothing that was sent to another address.
        opened.bind(group)
        number = 0 if interface is None else _number_of(interface)
        local = socket.inet_aton("0.0.0.0" if number else host)
        membership = _MEMBERSHIP.pack(socket.inet_aton(group[0]), local, number)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    except BaseException:
        opened.close()
        raise
    return opened


def _number_of(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV)) from None
