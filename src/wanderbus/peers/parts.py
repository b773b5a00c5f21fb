"""Names of the parts of the access server, which are also the scopes of their timers."""

from __future__ import annotations

from typing import Final

USER_AGENT: Final = "sip"
TRANSPORTS: Final = "data"
BROKER: Final = "broker"
BASELINE: Final = "eci"
SERVER_LINKS: Final = "servers"
LEADERS: Final = "leaders"
DECENTRALISED_INTEREST: Final = "decentralised_interest"
OWNERS: Final = "owners"

MULTICAST_SOCKET: Final = "multicast"
"""Socket of the domain's multicast group, for the interest in decentralised channels."""
