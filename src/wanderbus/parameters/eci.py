"""Parameters of the original ECI (SPEC A-09)."""

from __future__ import annotations

import msgspec


class BaselineConfig(msgspec.Struct, frozen=True):
    """Bounds on the state that the server stores for unauthenticated addresses."""

    identities_max: int = 1_000
    """Addresses attached at once; further ones are refused."""

    source_identities_max: int = 250
    """Attached addresses of one host (of one /64 of IPv6); the loopback interface has no such bound."""

    identity_idle_s: float = 86_400.0
    """Idle time after which an address is removed with its subscriptions, even if it may still be listening."""
