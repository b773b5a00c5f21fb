"""Lives of a device's agent: one that comes back after another shows that two agents are running (SPEC J-05)."""

from __future__ import annotations

import pytest

from tests.broker.desk import ALICE, Desk
from wanderbus.protocol import Attach, Attachment, RequestRefused


def attached(desk: Desk, epoch: int) -> bool:
    """Return whether an agent of the device in this life is attached over a new link."""
    link = desk.open(ALICE, "phone")
    desk.send(link, Attach(epoch, "default", None, True))
    refused = desk.received(link, RequestRefused)
    assert [each.limit for each in refused] in ([], ["device_used_twice"])
    return bool(desk.received(link, Attachment))


@pytest.mark.parametrize("restart", ["no", "from the log", "from saved rows"])
def test_an_agent_that_comes_back_after_another_is_refused(desk: Desk, restart: str) -> None:
    assert attached(desk, 1)
    assert attached(desk, 1), "the same agent over a new connection"
    assert attached(desk, 2)
    if restart != "no":
        desk.save()
        desk.restart(with_rows=restart == "from saved rows")
    assert not attached(desk, 1)
    assert attached(desk, 2)
    assert attached(desk, 3)
    assert not attached(desk, 2)


def test_agents_in_turn_are_refused_except_the_last(desk: Desk) -> None:
    assert [attached(desk, epoch) for epoch in (1, 2, 3, 1, 2, 3)] == [True, True, True, False, False, True]


def test_earlier_lives_are_bounded(desk: Desk) -> None:
    for epoch in range(1, 20):
        assert attached(desk, epoch)
    (row,) = desk.broker.state.devices.values()
    assert row.former == (15, 16, 17, 18)
