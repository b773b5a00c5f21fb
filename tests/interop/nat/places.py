"""The hosts of these tests, and the routers that they may be behind."""

from __future__ import annotations

from typing import Final

from demo.internet import Nat

SERVER, RELAY, OFFICE, ALICE, BOB = HOSTS = ("server", "relay", "office", "alice", "bob")
"""Where SIP is served; where a relay is that is elsewhere, and a broker; the publisher, and the subscriber."""

NORTH, SOUTH, EAST, WEST = "north", "south", "east", "west"
ROUTERS: Final = {NORTH: Nat.PORT_RESTRICTED, SOUTH: Nat.PORT_RESTRICTED, EAST: Nat.SYMMETRIC, WEST: Nat.SYMMETRIC}
