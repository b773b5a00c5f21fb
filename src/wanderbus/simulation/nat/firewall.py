"""Firewalls that only drop and do not translate: each protects one IP address (SPEC I-08)."""

from __future__ import annotations

from typing import Literal

import msgspec

from wanderbus.machine import Address

Protocol = Literal["UDP", "TCP"]


class Firewall(msgspec.Struct, frozen=True):
    """Drops all traffic of its host over ``protocols``, except with peers in ``open_to``.

    ``open_to`` has addresses, and the IP addresses of hosts all of whose ports are allowed.
    """

    protocols: frozenset[Protocol] = frozenset({"UDP"})
    open_to: frozenset[Address | str] = frozenset()

    def drops(self, protocol: Protocol, peer: Address) -> bool:
        """Return whether traffic between the host and ``peer`` is dropped."""
        return protocol in self.protocols and not {peer, peer[0]} & self.open_to
