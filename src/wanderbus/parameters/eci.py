"""Parameters of the original ECI (SPEC A-09)."""

from __future__ import annotations

import msgspec


class BaselineConfig(msgspec.Struct, frozen=True):
    """Bounds on what strangers may have the server keep."""

    identities_max: int = 1_000
    """Addresses attached at once; further ones are refused."""

    source_identities_max: int = 250
    """Those of one host among them (of one /64 of IPv6); on the loopback interface there is no such bound."""

    identity_idle_s: float = 86_400.0
    """An address that has said nothing for so long is forgotten with its subscriptions, though it may be listening."""
