"""Monitor of the local IP address that the route to the server uses (SPEC D-05).

The kernel reports over netlink that links, addresses or routes changed. The monitor then connects a UDP socket to
find the current address; this sends nothing. Polling covers systems without netlink.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from wanderbus.machine import Address

POLL_S: Final = 1.0
"""Pause between two checks when the kernel has reported nothing."""

_NETLINK_GROUPS: Final = 0x1 | 0x10 | 0x40 | 0x100 | 0x400
"""RTMGRP_LINK, and RTMGRP_IPV4 and RTMGRP_IPV6 for IFADDR and ROUTE (rtnetlink(7))."""


def address_towards(server: Address) -> str | None:
    """Return the local IP address that the route to ``server`` uses, None while there is no route."""
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(server)
        except OSError:
            return None
        return str(probe.getsockname()[0])


class AddressMonitor:
    """Calls ``on_change(address)`` when the local address towards ``server`` changes or returns.

    ``on_change`` returns whether the address could be used. If not, for example just after the address appeared, the
    monitor calls it again at the next check.
    """

    def __init__(self, server: Address, on_change: Callable[[str], bool], *, poll_s: float = POLL_S) -> None:
        self._server = server
        self._on_change = on_change
        self._poll_s = poll_s
        self._loop = asyncio.get_running_loop()
        self._current = address_towards(server)
        self._netlink = _open_netlink()
        if self._netlink is not None:
            self._loop.add_reader(self._netlink, self._on_netlink_message)
        self._timer = self._loop.call_later(poll_s, self._poll)

    def close(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._netlink is not None:
            self._loop.remove_reader(self._netlink)
            self._netlink.close()
            self._netlink = None

    def _on_netlink_message(self) -> None:
        assert self._netlink is not None
        with contextlib.suppress(OSError):
            while self._netlink.recv(65_536):
                pass
        self._look()

    def _poll(self) -> None:
        self._timer = self._loop.call_later(self._poll_s, self._poll)
        self._look()

    def _look(self) -> None:
        found = address_towards(self._server)
        changed = found != self._current
        self._current = found
        if changed and found is not None and not self._on_change(found):
            self._current = None


def _open_netlink() -> socket.socket | None:
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    except OSError:
        return None
    try:
        opened.bind((0, _NETLINK_GROUPS))
    except OSError:
        opened.close()
        return None
    return opened
