"""Simulated session with patterns that moves between two servers, which crash and whose clocks differ (L-01, T-07)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from wanderbus import protocol
from wanderbus.broker.sessions.handover_messages import (
    DropExport,
    FenceSession,
    ImportSession,
    SessionExported,
    SessionOwned,
)
from wanderbus.broker.state.rows import session_key
from wanderbus.event import Event
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.patterns import compile_pattern
from wanderbus.records import AnyRecord, Detected, Published, SessionFenced, SessionImported, Subscribed
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.weeks.clock import WallClock
from wanderbus.simulation.weeks.pattern_truth import FollowedPattern
from wanderbus.simulation.weeks.plans import DAY_S, HOUR_S, LATE_S_MAX, PATTERNS, STARTS_S, draw_event
from wanderbus.simulation.weeks.server import WeeksServer
from wanderbus.subscription import PATTERN

_USER: Final = "sip:alice@sim.test"
_RETRY_S: Final = 60.0
_DELAY_S: Final = 0.05

_SUBSCRIBES: Final = tuple(
    protocol.Subscribe(number, "", text, None, (), False, language=PATTERN) for number, text in enumerate(PATTERNS, 1)
)

Seen = tuple[str, tuple[str, ...]]
"""Subject of a detection, and the ids of its events."""


class MoveScenario(Scenario):
    """One user, who is away, has one subscription to each pattern; an event goes to the owner of the session."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw, start_us = self.world.random, STARTS_S[2] * 1_000_000
        apart_us = round(draw.uniform(-1, 1) * draw.choice([1.0, HOUR_S]) * 1e6)
        self._clocks = [WallClock(self.world, start_us + ahead_us) for ahead_us in (0, apart_us)]
        self.servers = [
            WeeksServer(self.world, clock, BrokerConfig(server=name, sweep_s=None, unacknowledged_max=10_000))
            for name, clock in zip(("one", "two"), self._clocks, strict=True)
        ]
        self.moves = 0
        """Moves that were begun; the owner epoch is one higher."""
        self._owner: int | None = 0
        """Server that has the session; None while it moves."""
        self._links = 0
        self._detected: list[Seen] = []

    def _play(self) -> None:
        draw, world = self.world.random, self.world
        for place, server in enumerate(self.servers):
            server.on_output = lambda output, place=place: self._moved(place, output)  # type: ignore[misc]
            server.start()
            for _ in range(draw.randint(0, 4)):
                world.at(draw.uniform(0.2, 7) * DAY_S, lambda server=server: self._crash(server))  # type: ignore[misc]
        world.at(60.0, lambda: self._say(0, _USER, _SUBSCRIBES))
        for _ in range(draw.randint(50, 300)):
            world.at(draw.uniform(0.1, 7) * DAY_S, self._publish)
        for _ in range(draw.randint(1, 20)):
            world.at(draw.uniform(0.1, 7) * DAY_S, self._move)
        world.run(12 * DAY_S)

    def _check_promises(self) -> None:
        self.problems += [problem for server in self.servers for problem in (*server.problems, *server.check_rows())]
        self._detected, expected = self._detections()
        if self._detected != expected:
            self.problems.append(f"detected were {self._detected}, it should be {expected}")
        received = self._read_all()
        if received != self._detected:
            self.problems.append(f"received were {received}, it should be {self._detected}")

    def counts(self) -> dict[str, float]:
        return {
            "moves": self.moves,
            "events": sum(isinstance(record, Published) for server in self.servers for record in _log(server)),
            "detections": len(self._detected),
            "server_crashes": sum(server.crashes for server in self.servers),
        }

    # Servers ----------------------------------------------------------------------------------------------------

    def _crash(self, server: WeeksServer) -> None:
        if server.alive:
            server.crash(lose_rows=self.world.random.random() < 0.3)
            self.world.after(self.world.random.choice([5.0, HOUR_S]), server.start)

    def _say(self, place: int, user: str, messages: Sequence[protocol.AgentMessage]) -> None:
        """Send messages on a new link, which is closed a minute later."""
        server = self.servers[place]
        self._links += 1
        wire = server.open(user, "desk", _DELAY_S, lambda link, payloads: None)
        if wire is not None:
            for message in (protocol.Attach(self._links, "default", None, True), *messages):
                wire.up.send(protocol.encode(message))
            self.world.after(60.0, lambda: server.close(wire.link, "it is over"))

    def _publish(self) -> None:
        subject, attributes = draw_event(self.world.random)
        if self._owner is not None:
            wall_s = self._clocks[self._owner].read() / 1e6
            at = datetime.fromtimestamp(wall_s - self.world.random.uniform(0, LATE_S_MAX), UTC)
            event = Event(subject, {**attributes, "At": at, "Uid": str(self._links)})
            self._say(self._owner, "sip:bob@sim.test", [protocol.Publish(1, event)])

    # Moves ------------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        if (source := self._owner) is not None:
            self._owner = None
            self.moves += 1
            self._fence(source, self.moves + 1)

    def _fence(self, source: int, owner_epoch: int) -> None:
        """Ask the source until the next owner has the session: any of them may have crashed."""
        if self._owner is None and owner_epoch == self.moves + 1:
            self.servers[source].feed(FenceSession(_USER, "default", owner_epoch))
            self.world.after(_RETRY_S, lambda: self._fence(source, owner_epoch))

    def _moved(self, place: int, output: Output) -> None:
        other = self.servers[1 - place]
        if isinstance(output, SessionExported):
            self.world.after(self.world.random.uniform(0.1, 30), lambda: other.feed(ImportSession(output.export)))
        elif isinstance(output, SessionOwned) and output.owner_epoch == self.moves + 1:
            self._owner = place
            self.world.after(_DELAY_S, lambda: other.feed(DropExport(_USER, "default")))

    # Checks -----------------------------------------------------------------------------------------------------

    def _detections(self) -> tuple[list[Seen], list[Seen]]:
        """Return what was detected, and what it should be, by the logs of the owners one after the other."""
        followed: dict[str, FollowedPattern] = {}
        detected, expected = list[Seen](), list[Seen]()
        for place, record in enumerate(self._owned()):
            match record:
                case Subscribed(subscription=subscription):
                    pattern = compile_pattern(subscription.expression)
                    followed[subscription.id] = FollowedPattern(pattern, pattern.start())
                case Published(event=event):
                    for each in followed.values():
                        if leaves := each.pattern.leaves_of(event.subject, event.attributes):
                            each.take(place, record, leaves)
                case Detected():
                    one = followed[record.subscription]
                    one.state, found = one.pattern.advance(one.state, (), record.watermark_us)
                    expected += [_seen(each.to_event()) for each in found]
                    detected += [_seen(protocol.decode_event(bytes(each.event))) for each in record.events]
        now_us = min(clock.read() for clock in self._clocks)
        for one in followed.values():
            _, found = one.pattern.advance(one.state, (), one.watermark_us(now_us))
            expected += [_seen(each.to_event()) for each in found]
        return detected, expected

    def _owned(self) -> Iterator[AnyRecord]:
        """Yield the records of each server during which it had the session, in the order of the owners."""
        of_owner: dict[int, list[AnyRecord]] = {}
        for place, server in enumerate(self.servers):
            owner_epoch = None if place else 1
            for record in _log(server):
                if isinstance(record, SessionImported):
                    owner_epoch = record.owner_epoch
                elif isinstance(record, SessionFenced):
                    owner_epoch = None
                elif owner_epoch is not None:
                    of_owner.setdefault(owner_epoch, []).append(record)
        return (record for _, records in sorted(of_owner.items()) for record in records)

    def _read_all(self) -> list[Seen]:
        """Return what the user's device receives of all subscriptions at the last owner, by number."""
        assert self._owner is not None
        server, found = self.servers[self._owner], dict[int, Seen]()

        def receive(link: int, payloads: Sequence[bytes]) -> None:
            for message in map(protocol.decode_from_broker, payloads):
                if isinstance(message, protocol.Notify):
                    found[message.number] = _seen(protocol.decode_event(bytes(message.event)))

        session = server.broker.state.sessions[session_key(_USER, "default")]
        readers = tuple(protocol.Reader(n, each) for n, each in enumerate(session.subscriptions, 1))
        wire = server.open(_USER, "desk", _DELAY_S, receive)
        assert wire is not None
        self._links += 1
        for message in (protocol.Attach(self._links, "default", None, True), protocol.Read(readers)):
            wire.up.send(protocol.encode(message))
        self.world.run(self.world.now + HOUR_S)
        return [found[number] for number in sorted(found)]


def _log(server: WeeksServer) -> list[AnyRecord]:
    return server.disk.records()


def _seen(event: Event) -> Seen:
    return event.subject, tuple(str(each) for each in event.get_all("events"))
