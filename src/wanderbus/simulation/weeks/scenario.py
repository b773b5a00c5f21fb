"""Simulated history of weeks: people with several devices, a broker that crashes, clocks that are set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import ClassVar, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.messages import DiskFreed, DiskFull
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.records import Detected, Published
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.weeks.checkers import check_weeks
from wanderbus.simulation.weeks.clock import WallClock
from wanderbus.simulation.weeks.device import WeeksDevice
from wanderbus.simulation.weeks.plans import (
    DAY_S,
    HOUR_S,
    LATE_S_MAX,
    STARTS_S,
    draw_config,
    draw_event,
    draw_habits,
    draw_lifetime,
    draw_pattern,
    draw_pattern_work,
    draw_restrictions,
    draw_spark_subjects,
    draw_subscribe,
)
from wanderbus.simulation.weeks.server import WeeksServer
from wanderbus.simulation.weeks.visits import draw_visited, plan_visits

SETTLE_S: Final = 2 * DAY_S
"""Seconds in which a repaired world has to come to rest."""


class WeeksScenario(Scenario):
    """A world with one broker and a few people, set up by the seed."""

    counted: ClassVar = {
        "days": "days",
        "devices": "devices",
        "events": "events",
        "matches": "matches",
        "restricted": "restricted",
        "dropped": "dropped",
        "subscriptions": "subscriptions",
        "links": "links",
        "server_crashes": "server crashes",
        "clock_jumps": "clocks set",
        "engine_events": "matched by an engine",
        "detections": "compound events",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.days = draw.choice([7, 7, 14, 28])
        self.clock = WallClock(self.world, (draw.choice(STARTS_S) + draw.randrange(86_400)) * 1_000_000)
        self._extra = extra = Random(f"engine and patterns of {seed}")
        """Draws about the engine and patterns, apart from the others: most worlds have neither, and are as without."""
        self._has_engine, self._has_patterns = extra.random() < 0.25, extra.random() < 0.3
        config = draw_config(draw)
        if self._has_engine:
            config = msgspec.structs.replace(config, spark_subjects=draw_spark_subjects(extra, config))
        if self._has_patterns:
            config = msgspec.structs.replace(config, user_pattern_events_max=extra.choice([10_000, 10_000, 4]))
            config = draw_pattern_work(Random(f"work of patterns of {seed}"), config)
        self._has_visits = extra.random() < 0.4
        if self._has_visits:
            config = draw_visited(extra, config, devices=4)
        self.server = WeeksServer(self.world, self.clock, config)
        self.devices = [
            WeeksDevice(self.world, self.server, f"sip:user{user}@sim.test", f"device{number}", draw_habits(draw))
            for user in range(1, draw.randint(1, 4) + 1)
            for number in range(1, draw.choice([1, 1, 2, 3, 4]) + 1)
        ]
        self._visitors: list[WeeksDevice] = []
        """Devices that come once, and are other ones each time."""

    def _check_promises(self) -> None:
        self.problems += check_weeks(self.server, [*self.devices, *self._visitors])

    def counts(self) -> dict[str, float]:
        log = self.server.disk.records()
        sessions = list(self.server.broker.state.sessions.values()) if self.server.alive else []
        return {
            "days": self.days,
            "devices": len(self.devices),
            "events": sum(len(device.accepted) for device in self.devices),
            "matches": sum(row.generated for row in sessions),
            "restricted": sum(row.restricted for row in sessions),
            "dropped": sum(sum(row.dropped.values()) for row in sessions),
            "subscriptions": sum(len(device.subscriptions) for device in self.devices),
            "links": len(self.server.offsets),
            "server_crashes": self.server.crashes,
            "clock_jumps": self.clock.jumps,
            "engine_events": sum(isinstance(each, Published) and bool(each.engine) for each in log),
            "detections": sum(len(each.events) for each in log if isinstance(each, Detected)),
        }

    def _play(self) -> None:
        draw, world = self.world.random, self.world
        self.server.start()
        for device in self.devices:
            world.at(draw.uniform(0, 0.5) * DAY_S, device.start)
            self._plan_wishes(device)
            self._plan_travels(device)
        self._plan_events()
        self._plan_server()
        if self._has_visits:
            self._visitors = plan_visits(self._extra, self.devices, self.days)
        if self._has_engine:
            self._plan_engine()
        for day in range(1, self.days):
            world.at(day * DAY_S, self._check)
        world.after(HOUR_S, self._read_new_subscriptions)
        world.run(self.days * DAY_S)
        self._end_disturbances()
        world.run(world.now + SETTLE_S, self._at_rest)
        if not self._at_rest():
            self.problems.append(f"{SETTLE_S / DAY_S:g} days after everything was mended it has not come to rest")
        world.run(world.now + 2 * (self.server.config.sweep_s or 0) + HOUR_S)
        world.run(world.now + 60.0, self._at_rest)  # a pattern may just have ended
        self._check()
        self.problems += self.server.check_reported()

    def _instant(self) -> float:
        """Draw a second of the world; most are by day."""
        draw = self.world.random
        hour = draw.uniform(8, 20) if draw.random() < 0.8 else draw.uniform(0, 24)
        return (draw.randrange(self.days) + hour / 24) * DAY_S

    # Plans -----------------------------------------------------------------------------------------------------

    def _plan_events(self) -> None:
        """Plan events: mostly one at a time, sometimes many at once."""
        draw = self.world.random
        for _ in range(draw.randint(20, 120)):
            at = self._instant()
            device = draw.choice(self.devices)
            for _ in range(draw.choice([1, 1, 1, 2, 5, 12])):
                self.world.at(at, lambda device=device: self._publish(device))  # type: ignore[misc]
                at += draw.choice([0.0, 0.5, 20.0, 600.0]) * draw.random()

    def _publish(self, device: WeeksDevice) -> None:
        draw = self.world.random
        subject, attributes = draw_event(draw)
        if self._has_patterns:
            late = timedelta(seconds=self._extra.uniform(0, LATE_S_MAX))
            attributes["At"] = datetime.fromtimestamp(self.clock.read() / 1e6, UTC) - late
        device.offer(subject, attributes, twice=draw.random() < 0.1, outbox=draw.random() < 0.2)

    def _plan_wishes(self, device: WeeksDevice) -> None:
        """Plan subscriptions: some at first, with changes later."""
        draw, world = self.world.random, self.world
        for _ in range(draw.randint(1, 3)):
            world.at(draw.uniform(0.5, 1) * DAY_S, lambda: self._subscribe(device))
        for _ in range(draw.randint(0, self.days)):
            world.at(self._instant(), lambda: self._change_subscription(device))

    def _subscribe(self, device: WeeksDevice) -> None:
        request = draw_subscribe(self.world.random, self.clock.read(), lasting=device.habits.renews)
        if self._has_patterns and self._extra.random() < 0.5:
            request = draw_pattern(self._extra, request)
        device.ask(request)

    def _change_subscription(self, device: WeeksDevice) -> None:
        draw, wall_us = self.world.random, self.clock.read()
        if not device.subscriptions or draw.random() < 0.4:
            self._subscribe(device)
            return
        one = draw.choice(device.subscriptions)
        match draw.choice(["renew", "renew", "unsubscribe", "restrict", "query", "purge", "kick"]):
            case "purge":
                device.ask(protocol.Purge(0, device.user, device.session, draw.choice([None, one])))
            case "kick":
                other = draw.choice([each.name for each in self.devices if each.user == device.user])
                device.ask(protocol.Kick(0, device.user, draw.choice([None, other]), draw.random() < 0.3))
            case "renew":
                device.ask(protocol.Renew(0, one, *draw_lifetime(draw, wall_us, lasting=device.habits.renews)))
            case "unsubscribe":
                device.ask(protocol.Unsubscribe(0, one))
            case "restrict":
                device.ask(protocol.Restrict(0, one, draw_restrictions(draw, wall_us)))
            case "query":
                device.ask(protocol.Query(0))

    def _plan_travels(self, device: WeeksDevice) -> None:
        draw = self.world.random
        for _ in range(draw.randint(1, 4 + self.days)):
            at = self._instant()
            match draw.choice(["move", "move", "away", "away", "break", "break", "crash", "replaced", "leave"]):
                case "move":
                    self.world.at(at, device.move)
                case "break":
                    up, down = draw.choice([(True, True), (True, False), (False, True)])
                    self.world.at(at, lambda up=up, down=down: device.lose(up=up, down=down))  # type: ignore[misc]
                case "away":
                    self.world.at(at, lambda: self._go_away(device))
                    self.world.at(at + self._pause(), device.reconnect_soon)
                case "crash":
                    self.world.at(at, device.crash)
                    self.world.at(at + self._pause(), lambda: self._start(device))
                case "replaced":
                    self.world.at(at, lambda: self._replace(device))
                case "leave":
                    self.world.at(at, device.leave)
                    self.world.at(at + self._pause(), lambda: self._start(device))

    def _go_away(self, device: WeeksDevice) -> None:
        """Be unreachable for a while, sometimes directly after publishing and before the acknowledgement."""
        draw = self.world.random
        if draw.random() < 0.4:
            self._publish(device)
        self.world.after(draw.uniform(0, 3) * device.habits.delay_s, device.go_away)

    def _pause(self) -> float:
        """Draw the duration of an absence: seconds to days."""
        draw = self.world.random
        return draw.uniform(0.3, 3) * draw.choice([10.0, HOUR_S, DAY_S, 3 * DAY_S])

    def _replace(self, device: WeeksDevice) -> None:
        """Start a new process that takes over the device id of a running one."""
        device.crash()
        self._start(device)

    def _start(self, device: WeeksDevice) -> None:
        draw = self.world.random
        session = draw.choice(["default", "default", "default", "work"]) if draw.random() < 0.3 else None
        device.start(session=session, keep=draw.random() > 0.1, keep_queue=draw.random() < 0.3)

    def _plan_server(self) -> None:
        """Plan crashes at any time or directly after a write, and clock changes at any time, also while the server is
        down.
        """
        draw = self.world.random
        for _ in range(draw.choice([0, 0, 1, 2, 4])):
            crash = draw.choice([self._crash, self._crash_at_next_append])
            self.world.at(self._instant(), crash)
        for _ in range(draw.choice([0, 0, 1, 2, 5])):
            self.world.at(self._instant(), self._jump)
        if draw.random() < 0.2:
            at = self._instant()
            self.world.at(at, lambda: self.server.feed(DiskFull()))
            self.world.at(at + draw.uniform(0.1, 1) * DAY_S, lambda: self.server.feed(DiskFreed()))

    def _plan_engine(self) -> None:
        """Plan an engine that answers late and in parts, is away for hours or days, and loses what it knows."""
        draw, engine = self._extra, self.server.engine
        engine.events_max = draw.choice([1, 5, 256])
        engine.delay_s_max = draw.choice([0.5, 60.0, 2 * HOUR_S])
        engine.retry_s = 300.0
        for _ in range(draw.randint(0, 6)):
            self.world.at(draw.uniform(0, self.days) * DAY_S, engine.forget)
        for _ in range(draw.randint(0, 4)):
            start = draw.uniform(0, self.days) * DAY_S
            self.world.at(start, self._remove_engine)
            self.world.at(start + draw.uniform(0.1, 1) * draw.choice([HOUR_S, DAY_S, 3 * DAY_S]), self._return_engine)

    def _remove_engine(self) -> None:
        self.server.engine.is_away = True

    def _return_engine(self) -> None:
        self.server.engine.is_away = False

    def _jump(self) -> None:
        self.clock.jump(self.world.random.choice([1.0, 60.0, HOUR_S]) * self.world.random.uniform(-1, 1))

    def _crash_at_next_append(self) -> None:
        delay_s = self.world.random.uniform(0, 0.01)

        def crash() -> None:
            self.server.disk.on_append = lambda: None
            self.world.after(delay_s, self._crash)

        self.server.disk.on_append = crash

    def _crash(self) -> None:
        draw = self.world.random
        if not self.server.alive:
            return
        self.server.crash(lose_rows=draw.random() < 0.3)
        if draw.random() < 0.3:
            self._jump()
        self.world.after(draw.choice([5.0, 300.0, 3 * HOUR_S]), self._boot)

    def _boot(self) -> None:
        if not self.server.alive:
            self.server.start()

    # End
    # ---------------------------------------------------------------------------------------------------------------

    def _read_new_subscriptions(self) -> None:
        """Let every application read the newer subscriptions of its user's other applications."""
        for device in self.devices:
            device.read_all()
        self.world.after(HOUR_S, self._read_new_subscriptions)

    def _check(self) -> None:
        self.problems += [f"at {self.world.now:.0f} s: {problem}" for problem in self.server.check_now()]

    def _end_disturbances(self) -> None:
        """Bring everything back, except some devices that stay away for good."""
        draw = self.world.random
        self.server.disk.on_append = lambda: None
        self._boot()
        self._return_engine()
        self.server.engine.delay_s_max = 1.0
        for device in self.devices:
            device.read_everything()
            if draw.random() < 0.8:
                device.reconnect_soon()
                device.start()
            else:
                device.retired = True

    def _at_rest(self) -> bool:
        """Return whether reachable devices have their responses and have consumed all that the broker has."""
        broker = self.server.broker
        if not self.server.alive or broker.engine.is_waiting:
            return False
        next_us = broker.state.patterns.next_us
        if next_us is not None and next_us <= broker.state.wall_us:
            return False
        for device in self.devices:
            if device.alive and device.reachable:
                stream = broker.state.sessions.get(session_key(device.user, device.session))
                if not device.settled or stream is None or self._waits(broker.state, stream, device):
                    return False
        return True

    @staticmethod
    def _waits(state: BrokerState, session: SessionRow, device: WeeksDevice) -> bool:
        """Return whether a notification still waits for a device."""
        if (queue := state.queue.get(session.key)) is None:
            return False
        for identity in queue.queues:
            row = state.known(identity)
            concerned = row is not None and row.subscription.device in (None, device.name)
            cursors = (row.cursors if row is not None else None) or {}
            if concerned and queue.after(identity, cursors.get(device.name, 0)) is not None:
                return True
        return False
