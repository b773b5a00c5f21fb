"""Firewalls that drop and translate nothing: each stands before one IP address (SPEC I-08)."""

from __future__ import annotations

from typing import Literal

import msgspec

from wanderbus.machine import Address

Protocol = Literal["UDP", "TCP"]


class Firewall(msgspec.Struct, frozen=True):
    """Drops what its host exchanges with others over ``protocols``, but with those it is ``open_to``.

    ``open_to`` has addresses, and of hosts all of whose ports may be reached the IP addresses.
    """

    protocols: frozenset[Protocol] = frozenset({"UDP"})
    open_to: frozenset[Address | str] = frozenset()

    def drops(self, protocol: Protocol, peer: Address) -> bool:
        """Return whether nothing passes between the host and ``peer``."""
        return protocol in self.protocols and not {peer, peer[0]} & self.open_to
