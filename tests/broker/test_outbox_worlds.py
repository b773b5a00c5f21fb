"""Devices that move, links that break, full disks: outboxes are accepted once and in order (SPEC X25, K-02)."""

from __future__ import annotations

from random import Random

import pytest

from tests.broker.access_desk import NORTHERN
from tests.broker.desk import BOB
from tests.broker.test_foreign_worlds import DEVICES, EVENTS, WINDOW, Access, run
from wanderbus.event import Event
from wanderbus.protocol import Publish, PublishAccepted, PublishRefused


class Outboxes:
    """The outboxes of two devices, which move between access servers."""

    def __init__(self, desk: Access) -> None:
        self.desk = desk
        self.links = {name: desk.attach(BOB, name) for name in DEVICES}
        self.read = dict.fromkeys(DEVICES, 0)
        self.settled: dict[str, set[int]] = {name: set() for name in DEVICES}
        self.unsent: dict[str, list[int]] = {name: list(range(1, EVENTS + 1)) for name in DEVICES}
        self.in_flight: dict[str, set[int]] = {name: set() for name in DEVICES}
        self.waits: set[str] = set()
        """Devices with a refused event: they send nothing until all is answered."""

    def move(self, desk: Access, *, closes: bool) -> None:
        """Let both devices repeat what is not settled at a server."""
        for name in DEVICES:
            if closes:
                self.desk.close(self.links[name])
            self.links[name], self.read[name] = desk.attach(BOB, name), 0
            self.unsent[name] = [each for each in range(1, EVENTS + 1) if each not in self.settled[name]]
            self.in_flight[name].clear()
        self.desk = desk
        self.waits.clear()

    def first(self, name: str) -> int:
        """Return the number of the first event that is not settled."""
        return next(number for number in range(1, EVENTS + 2) if number not in self.settled[name])

    def send(self, name: str) -> None:
        """Publish the next event of a device, if it may be sent."""
        if name in self.waits and not self.in_flight[name]:
            self.waits.discard(name)
        if name not in self.waits and self.unsent[name] and self.unsent[name][0] < self.first(name) + WINDOW:
            number = self.unsent[name].pop(0)
            self.in_flight[name].add(number)
            self.desk.send(self.links[name], Publish(number, Event(NORTHERN, {"N": number}), outbox=77))

    def receive(self) -> None:
        """Take the answers: an event that was refused for now is sent again."""
        for name, link in self.links.items():
            sent = self.desk.out.get(link, [])
            for answer in sent[self.read[name] :]:
                if isinstance(answer, PublishAccepted):
                    self.settled[name].add(answer.number)
                elif isinstance(answer, PublishRefused):
                    assert answer.limit == "disk_full", answer
                    self.unsent[name] = sorted([*self.unsent[name], answer.number])
                    self.waits.add(name)
                else:
                    continue
                self.in_flight[name].discard(answer.number)
            self.read[name] = len(sent)

    @property
    def is_done(self) -> bool:
        """Return whether all events are settled."""
        return all(self.first(name) > EVENTS for name in DEVICES)


@pytest.mark.parametrize("seed", range(60))
def test_x25_events_of_outboxes_are_accepted_once_and_in_order(seed: int) -> None:
    accepted = run(Random(seed), 64, Outboxes)
    for name in DEVICES:
        assert [each.number for each in accepted if each.device == name] == list(range(1, EVENTS + 1))
