"""The drain of a server, as its operator requests and sees it (SPEC L-06; decision 0142)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.access_desk import AccessDesk
from tests.broker.desk import ALICE, BOB, Desk
from tests.broker.office import ADAM, OLGA, ROLES, refusal
from wanderbus.broker.sessions.handover_messages import DrainingSet, DropExport, FenceSession, SessionMoveEnded
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import OPERATIONS, Drain, Listing
from wanderbus.records import DrainingChanged


class DrainedDesk(AccessDesk):
    """A desk of a server in a domain, that counts the changes of its drain."""

    def __init__(self) -> None:
        self.drain_changes = 0
        super().__init__(BrokerConfig(server="south", domain="example.org", roles=ROLES))

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        self.drain_changes += sum(isinstance(each, DrainingSet) for each in outputs)

    def asked(self, link: int, *, on: bool | None = None) -> dict[str, object]:
        self.send(link, Drain(7, on))
        answer = self.out[link][-1]
        assert isinstance(answer, Listing), answer
        return dict(answer.rows[0])


@pytest.fixture
def desk() -> DrainedDesk:
    desk = DrainedDesk()
    desk.subscribed(desk.attach(ALICE, "phone"), "N > 0")
    return desk


def test_l06_a_drain_is_requested_once_and_outlives_a_restart(desk: DrainedDesk) -> None:
    adam = desk.attach(ADAM, "desk", session=OPERATIONS)
    row = {"server": "south", "is_draining": True, "sessions": 1, "stuck": {}}
    assert desk.asked(adam, on=True) == desk.asked(adam, on=True) == desk.asked(adam) == row
    assert (desk.drain_changes, len(desk.written(DrainingChanged))) == (1, 1)
    desk.save()
    desk.restart(with_rows=True)
    assert desk.broker.state.is_draining
    assert desk.asked(desk.attach(ADAM, "desk", session=OPERATIONS), on=False)["is_draining"] is False
    assert not desk.broker.state.is_draining


def test_l06_the_answer_counts_what_is_left_and_says_why(desk: DrainedDesk) -> None:
    adam = desk.attach(ADAM, "desk", session=OPERATIONS)
    desk.subscribed(desk.attach(BOB, "phone"), "N > 0")
    desk.asked(adam, on=True)
    desk.give(SessionMoveEnded(ALICE, "default", "north", "it is full"))
    assert desk.asked(adam) == {"server": "south", "is_draining": True, "sessions": 2, "stuck": {"it is full": 1}}
    desk.give(FenceSession(ALICE, "default", 2))
    assert desk.asked(adam)["sessions"] == 2, "the next owner does not have it yet"
    desk.give(DropExport(ALICE, "default"), SessionMoveEnded(ALICE, "default", "north"))
    assert desk.asked(adam) == {"server": "south", "is_draining": True, "sessions": 1, "stuck": {}}


@pytest.mark.parametrize(("asker", "may_see"), [(ALICE, False), (OLGA, True)])
def test_l06_only_administrators_drain_and_operators_see_it(desk: DrainedDesk, asker: str, may_see: bool) -> None:
    link = desk.attach(asker, "desk")
    assert "the role 'administrator'" in refusal(desk, link, Drain(1, on=True))
    assert not desk.broker.state.is_draining
    if may_see:
        assert desk.asked(link)["is_draining"] is False
    else:
        assert "role" in refusal(desk, link, Drain(1))


def test_a_server_that_is_alone_has_nowhere_to_drain_to() -> None:
    alone = Desk(BrokerConfig(server="south", roles=ROLES))
    assert "is alone" in refusal(alone, alone.attach(ADAM, "desk"), Drain(1, on=True))
