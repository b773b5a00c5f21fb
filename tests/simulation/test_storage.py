"""Storage of a simulated broker: it answers one life of the broker, and finds positions in the log."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from wanderbus.broker.messages import Append, MatchesRead, MatchesWanted, OffsetFound, OffsetWanted
from wanderbus.event import Position
from wanderbus.machine import Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import SERVER_LOG
from wanderbus.segments import Frame
from wanderbus.simulation import past_events
from wanderbus.simulation.storage import SimulatedStorage
from wanderbus.simulation.world import World
from wanderbus.subscription import Since

OFFSET = OffsetWanted(1, Since(), "sip:alice@sim.test", "default")
MATCHES = MatchesWanted(1, 0, 0, (), 100)
WRITE = Append(SERVER_LOG, ((0, 5, b""),), urgent=True)


class Setting:
    """A storage in a world, and what it has given to its broker."""

    def __init__(self) -> None:
        self.world = World(3)
        self.given: list[Input] = []
        self.storage = SimulatedStorage(self.world, BrokerConfig(), self.given.append, save_s=(100.0, 200.0))
        self.storage.start()


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.mark.parametrize(("asked", "answer"), [(OFFSET, OffsetFound(1, 0)), (MATCHES, MatchesRead(1, 0))])
def test_an_answer_is_for_the_life_that_asked(setting: Setting, asked: Output, answer: Input) -> None:
    storage, world = setting.storage, setting.world
    assert storage.perform(asked)
    world.run(2.0)
    assert setting.given == [answer]
    storage.perform(asked)
    world.run(world.now)
    storage.crash(lose_rows=False)
    storage.start()
    world.run(4.0)
    assert setting.given == [answer]


def test_a_position_is_looked_for_in_the_whole_log(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def found(frames: Iterable[Frame], user: str, session: str, number: int) -> int | None:
        looked.extend(frame.offset for frame in frames)
        return 7 if number == 4 else None

    monkeypatch.setattr(past_events, "find_position", found)
    setting.storage.perform(WRITE)
    for number in (4, 5):
        since = Since(position=Position(1, number))
        setting.storage.perform(OffsetWanted(number, since, "sip:alice@sim.test", "default"))
        setting.world.run(setting.world.now + 1.0)
    assert setting.given[1:] == [OffsetFound(4, 7), OffsetFound(5, None, "the log has no such position")]
    assert looked == [0, 0]
