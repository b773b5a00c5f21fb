"""Change of an interface's IPv4 address, as ``ip addr del`` and ``ip addr add`` do.

It calls the kernel directly (rtnetlink(7)), so that the moment is known from which the new address can be used.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Final, NamedTuple

_RTM_NEWADDR: Final = 20
_RTM_DELADDR: Final = 21
_NLMSG_ERROR: Final = 2
_REQUEST_AND_ACK: Final = 0x1 | 0x4
_CREATE_ONLY: Final = 0x400 | 0x200
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_HEADER: Final = struct.Struct("=IHHII")
_ADDRESS: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH4s")


class Change(NamedTuple):
    """Times at which the old address was gone and the new one could be used, on the monotonic clock."""

    gone_s: float
    usable_s: float


def change_address(device: str, old: str, new: str, prefix_bits: int) -> Change:
    """Take ``old`` from the interface, then give it ``new``; raises ``OSError``."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        index = socket.if_nametoindex(device)
        _ask(kernel, _RTM_DELADDR, 0, index, old, prefix_bits)
        gone_s = time.monotonic()
        _ask(kernel, _RTM_NEWADDR, _CREATE_ONLY, index, new, prefix_bits)
        return Change(gone_s, time.monotonic())


def _ask(kernel: socket.socket, kind: int, flags: int, index: int, address: str, prefix_bits: int) -> None:
    packed = socket.inet_aton(address)
    body = _ADDRESS.pack(socket.AF_INET, prefix_bits, 0, 0, index)
    body += b"".join(_ATTRIBUTE.pack(_ATTRIBUTE.size, each, packed) for each in (_IFA_LOCAL, _IFA_ADDRESS))
    kernel.sendto(_HEADER.pack(_HEADER.size + len(body), kind, flags | _REQUEST_AND_ACK, 1, 0) + body, (0, 0))
    answer = kernel.recv(4_096)
    _, answered, _, _, _ = _HEADER.unpack_from(answer)
    (code,) = struct.unpack_from("=i", answer, _HEADER.size)
    if answered != _NLMSG_ERROR or code != 0:
        raise OSError(-code, f"address {address}: {os.strerror(-code)}")
