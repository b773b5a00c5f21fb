"""A session moves to the server that is near to its devices, once they stay there (SPEC L-01)."""

from __future__ import annotations

from tests.broker.desk import ALICE, BOB
from tests.peers.handover_town import Town
from tests.peers.test_draining import later, owners, set_draining
from wanderbus.peers.handover.following import RETRY_S, SETTLED_S
from wanderbus.protocol import OPERATIONS

NEAR_SOUTH, NEAR_NORTH, NEAR_EAST = "10.1.0.5", "10.2.0.5", "10.3.0.5"


def connected(*devices: str, user: str = ALICE) -> Town:
    """Three servers; devices of a user are connected at the first one, and near to it."""
    town = Town()
    for device in devices:
        town["south"].attach(user, device)
        town["south"].locate(NEAR_SOUTH, device, user)
    return town


def test_l01_a_session_follows_its_device_to_the_server_that_is_near() -> None:
    town = connected("phone")
    town["south"].locate(NEAR_NORTH)
    later(town, SETTLED_S)
    assert owners(town) == ["north"]


def test_l01_a_device_that_passes_by_moves_nothing() -> None:
    town = connected("phone")
    for host in (NEAR_NORTH, NEAR_SOUTH, NEAR_EAST):
        town["south"].locate(host)
        later(town, SETTLED_S / 2)
    assert (owners(town), town.trace) == (["south"], [])
    later(town, SETTLED_S)
    assert owners(town) == ["east"], "it has stayed there"


def test_l01_a_session_stays_while_one_of_its_devices_is_near() -> None:
    town = connected("phone", "desk")
    town["south"].locate(NEAR_NORTH)
    later(town, SETTLED_S)
    assert owners(town) == ["south"]
    town["south"].locate(NEAR_NORTH, "desk")
    later(town, SETTLED_S)
    assert owners(town) == ["north"]


def test_l01_nobody_is_followed_who_is_near_to_no_server_or_is_away_or_only_asks() -> None:
    town = connected("phone")
    town["south"].locate("192.0.2.1")
    later(town, SETTLED_S)
    town["south"].attach(BOB, "desk", session=OPERATIONS, reads=False)
    town["south"].locate(NEAR_NORTH, "desk", BOB)
    gone = town["south"].attach(ALICE, "watch")
    town["south"].locate(NEAR_NORTH, "watch")
    town["south"].close(gone)
    later(town, SETTLED_S)
    assert (owners(town), town.trace) == (["south"], [])


def test_l01_a_session_whose_move_has_failed_is_tried_again() -> None:
    town = connected("phone")
    set_draining(town, "north")
    town["south"].locate(NEAR_NORTH)
    later(town, SETTLED_S)
    assert owners(town) == ["south"], "north takes none"
    set_draining(town, "north", is_draining=False)
    town.run()
    later(town, RETRY_S - SETTLED_S)
    assert owners(town) == ["south"]
    later(town, 2 * SETTLED_S)
    assert owners(town) == ["north"]
