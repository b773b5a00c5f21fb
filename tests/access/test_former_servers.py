"""A device at a third server, whose former servers name each other (SPEC L-04, decision 0149)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.access.town import Town
from tests.broker.desk import ALICE
from wanderbus.broker.sessions.handover_messages import DevicePast, FormerServerAsked, PastReported
from wanderbus.broker.state.decentralised_state import encode_past
from wanderbus.machine import Output
from wanderbus.protocol import Attach, PublishAccepted


class Questions:
    """The questions of a server about a device, and answers: the one that was asked names the next, or knows all."""

    def __init__(self, town: Town, name: str) -> None:
        self.post = town[name]
        self._perform = self.post.perform
        self._asked: list[FormerServerAsked] = []
        self.post.perform = self._note  # type: ignore[method-assign]

    def _note(self, outputs: Sequence[Output]) -> None:
        self._asked += [each for each in outputs if isinstance(each, FormerServerAsked)]
        self._perform(outputs)

    def answer(self, server: str, next_server: str, *, named: str = "") -> None:
        """Answer the only question, which has to be for ``server`` and about whom it has ``named``."""
        (asked,) = self._asked
        assert (asked.server, asked.question.named) == (server, named)
        self._asked.clear()
        past = encode_past(self.post.broker.state.decentralised, 0)
        self.post.give(PastReported(server, asked.request, DevicePast(b"", past, next_server)))


@pytest.fixture
def town() -> Town:
    return Town()


def attached(town: Town, name: str, was_at: str) -> int:
    """Let Alice's device come from another server, and publish."""
    post = town[name]
    link = post.open(ALICE, "phone")
    post.send(link, Attach(1, "default", None, keep=True, keep_queue=False, was_at=was_at))
    post.publish(link, 1)
    return link


def test_l04_a_former_server_is_asked_again_because_the_device_may_be_there_now(town: Town) -> None:
    """It was at s3 when that named s1, and has come back to s3 from s1 since."""
    questions = Questions(town, "s2")
    link = attached(town, "s2", was_at="s3")
    questions.answer("s3", "s1")
    questions.answer("s1", "s3")
    assert not town["s2"].received(link, PublishAccepted)
    questions.answer("s3", "")
    assert len(town["s2"].received(link, PublishAccepted)) == 1


def test_l04_a_circle_is_broken_once_each_server_was_asked_twice(town: Town) -> None:
    questions = Questions(town, "s2")
    link = attached(town, "s2", was_at="s3")
    for _ in range(2):
        questions.answer("s3", "s1")
        questions.answer("s1", "s3")
    assert not town["s2"].received(link, PublishAccepted)
    questions.answer("s1", "", named="s3")
    assert len(town["s2"].received(link, PublishAccepted)) == 1
