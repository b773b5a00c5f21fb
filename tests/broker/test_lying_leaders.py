"""A leader that lies about channel groups ends no other server (docs/SECURITY.md)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from tests.broker.test_held_publishes import NORTH, WEST, LeaderDesk
from wanderbus import records
from wanderbus.broker.messages import GroupsArrived, LeaderLinkChanged
from wanderbus.errors import RemoteProtocolError
from wanderbus.protocol import decode_from_broker, encode
from wanderbus.protocol.domains import GroupLeaders, LedGroup, MovingGroup

GROUP: Final = 1
"""The group that north leads."""

TRUE: Final = LedGroup(GROUP, "south", 2, "north")


@pytest.fixture
def desk() -> LeaderDesk:
    desk = LeaderDesk()
    desk.settle(NORTH, WEST)
    desk.give(LeaderLinkChanged("north", 77))
    return desk


def says(desk: LeaderDesk, *led: LedGroup, moving: tuple[MovingGroup, ...] = ()) -> list[Any]:
    """Let north say something about groups; return the records of that."""
    before = len(desk.log)
    desk.give(GroupsArrived("north", 77, GroupLeaders(led, moving)))
    return [records.decode_record(each) for each in desk.log[before:]]


def test_the_truth_is_believed(desk: LeaderDesk) -> None:
    (prepared,) = says(desk, moving=(MovingGroup(GROUP, "south", 2, 5),))
    assert isinstance(prepared, records.GroupPrepared)
    (moved,) = says(desk, TRUE)
    assert isinstance(moved, records.GroupMoved)


@pytest.mark.parametrize(
    "lie",
    [
        {"server": "nobody"},
        {"server": "west"},
        {"former": "nobody"},
        {"group": 2},
        {"group": -1},
        {"epoch": 1},
    ],
)
def test_a_leader_that_cannot_be_is_not_believed(desk: LeaderDesk, lie: dict[str, Any]) -> None:
    assert says(desk, msgspec.structs.replace(TRUE, **lie)) == []


@pytest.mark.parametrize("lie", [{"target": "nobody"}, {"target": "west"}, {"group": 2}, {"epoch": 3}])
def test_a_group_goes_to_no_server_that_cannot_lead_it(desk: LeaderDesk, lie: dict[str, Any]) -> None:
    moving = msgspec.structs.replace(MovingGroup(GROUP, "south", 2, 5), **lie)
    assert says(desk, moving=(moving,)) == []


def test_many_leaders_of_one_group_in_one_message_are_one_record(desk: LeaderDesk) -> None:
    several = [LedGroup(GROUP, "north", epoch, "south") for epoch in range(2, 100)]
    (moved,) = says(desk, *several)
    assert moved.epoch == 99


@pytest.mark.parametrize("epoch", [-1, 2**63, 2**64 - 1])
def test_an_epoch_that_the_log_cannot_hold_is_no_message(epoch: int) -> None:
    led = encode(GroupLeaders((msgspec.structs.replace(TRUE, epoch=epoch),)))
    moving = encode(GroupLeaders((), (MovingGroup(GROUP, "south", epoch, 5),)))
    for payload in (led, moving):
        with pytest.raises(RemoteProtocolError):
            decode_from_broker(payload)
