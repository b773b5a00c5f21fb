"""The hosts of these tests, and the routers that they may be behind."""

from __future__ import annotations

from typing import Final

from harness.internet import Nat

SERVER, RELAY, OFFICE, ALICE, BOB = HOSTS = ("server", "relay", "office", "alice", "bob")
"""Hosts of the SIP server, of a separate relay, of a separate broker, of the publisher and of the subscriber."""

NORTH, SOUTH, EAST, WEST = "north", "south", "east", "west"
ROUTERS: Final = {NORTH: Nat.PORT_RESTRICTED, SOUTH: Nat.PORT_RESTRICTED, EAST: Nat.SYMMETRIC, WEST: Nat.SYMMETRIC}
