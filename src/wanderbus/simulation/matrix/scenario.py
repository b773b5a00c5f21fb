"""One cell of the mobility matrix: two users of a domain of two servers, of whom one moves (SPEC U-09).

The cell is that of the seed: seed ``n`` runs cell ``n`` modulo their number, so all are run by as many seeds in a row.
Both users subscribe to everything and publish, so events flow in both directions. Each event that a log has must be
consumed once by each, in the order of the channel, and each acknowledged one is in a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Final

from wanderbus import records
from wanderbus.broker.state.rows import session_key
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.protocol import Drain, MoveGroup, MoveSession
from wanderbus.simulation.fleet import ServerFleet, ip_of
from wanderbus.simulation.matrix.cells import CELLS, Activity, Change, Path
from wanderbus.simulation.matrix.device import MatrixDevice
from wanderbus.simulation.matrix.learning_relay import LearningRelay
from wanderbus.simulation.nat.nat import NAT
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.relay.relay_host import NG_PORT, RelayHost
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.server import DOMAIN, FINGERPRINT
from wanderbus.simulation.system.checkers import check_items
from wanderbus.simulation.system.traveller import SUBJECT

RELAY_IP: Final = "10.0.0.9"
PORTS: Final = range(30_000, 30_200)
SERVERS: Final = ("s1", "s2")
_OPERATOR: Final = "operator"
_NAT_IDLE_S: Final = 300.0
_BEGIN_S: Final = 60.0
_SETTLE_S: Final = 200.0
_IN_FLIGHT_S: Final = 0.004
"""Time for which the transactions are under way: less than one round trip."""
_AWAY_S: Final = 3.0
"""Time for which a device is off, or its server is down."""
_PAUSE_S: Final = 1.0
_BURST: Final = 100
"""Events that wait for a device whose queue drains."""
_STREAM: Final = 60
"""Events that each device publishes around the change."""
_BEHIND_NAT: Final = frozenset({Change.PORT_REBOUND, Change.OUT_OF_NAT, Change.BETWEEN_NATS})
"""Changes of a device that is behind a NAT at first."""
TO_OTHER_SERVER: Final = frozenset({Change.SERVER_CHANGED, Change.SERVER_DRAINED})


class MatrixScenario(Scenario):
    """The world of one cell."""

    counted: ClassVar = {"events": "events", "notifications": "notifications", "relayed": "datagrams relayed"}

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.cell = CELLS[seed % len(CELLS)]
        draw = self.world.random
        self.network = Network(
            self.world, PathConditions(loss=draw.choice([0.0, 0.0, 0.02]), delay_min_s=0.005, delay_max_s=0.02)
        )
        self._nats = 0
        self._home = draw.choice(SERVERS)
        rudp = RudpConfig()
        operator = f"sip:{_OPERATOR}@{DOMAIN}"
        config = BrokerConfig(unacknowledged_max=8, roles={operator: "administrator"})
        relays = () if self.cell.path is Path.DIRECT else ((RELAY_IP, NG_PORT),)
        self.fleet = ServerFleet(self.world, self.network, config, rudp, names=SERVERS, leaders=SERVERS, relays=relays)
        kind = LearningRelay if self.cell.path is Path.RTPENGINE else RelayHost
        self._destinations = [ip_of(name) for name in SERVERS] if self.cell.path is Path.DIRECT else [RELAY_IP]
        """Addresses to which a device may send in the end."""
        self.relay = kind(RELAY_IP, PORTS, self.world, self.network, fingerprint=FINGERPRINT)
        self._leader = self.fleet.channels[self._home].leader(SUBJECT)
        """The server that is to lead the channel."""
        self.mover = self._device("mover", 1, self._home, rudp)
        self.other = self._device("other", 2, draw.choice(SERVERS), rudp)
        self.operator = self._device(_OPERATOR, 3, self._home, rudp, expressions=())
        self.users = self.mover, self.other
        if self.cell.change in _BEHIND_NAT:
            self.mover.nat = self._new_nat()

    def _device(self, name: str, number: int, home: str, rudp: RudpConfig, **options: Any) -> MatrixDevice:
        given: dict[str, Any] = {"expressions": ("",), "resumes": True, "think_s_max": 0.03} | options
        return MatrixDevice(name, number, self.world, self.network, rudp, home=home, way=self.cell.way, **given)

    def _new_nat(self) -> NAT:
        self._nats += 1
        return NAT(f"203.0.113.{self._nats}", _NAT_IDLE_S, self.world, self.network)

    def counts(self) -> dict[str, float]:
        relay = self.relay.relay
        return {
            "events": len(self._published()),
            "notifications": sum(each.consumed for each in self.users),
            "relayed": relay.figures.datagrams + sum(side.figures.datagrams for side in relay.sides.values()),
        }

    # Course ---------------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        for server in self.fleet.servers.values():
            server.start()
        self._run(_PAUSE_S)
        for device in (*self.users, self.operator):
            device.start()
        self._reach("begun", lambda: self.operator.connected and all(each.settled for each in self.users), _BEGIN_S)
        self._publish_everywhere()
        self._reach("at rest before the change", self._is_at_rest, _SETTLE_S)
        if self.problems:
            return
        self._begin_activity()
        if not self._is_active():
            self.problems.append(f"the mover is not {self.cell.activity} at the change: the cell shows nothing")
        self.world.note("matrix", f"{self.cell} now")
        self._change()
        self._run(_PAUSE_S)
        self._publish_everywhere()
        self._run(2 * _AWAY_S)
        self._reach("at rest after the change", self._is_at_rest, _SETTLE_S)
        self._publish_everywhere()
        self._reach("at rest at the end", self._is_at_rest, _SETTLE_S)

    def _run(self, seconds: float) -> None:
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(end)

    def _reach(self, what: str, done: Callable[[], bool], seconds: float) -> None:
        self.world.run(self.world.now + seconds, done)
        if not done():
            self.problems.append(f"not {what} within {seconds:g} s")

    def _is_at_rest(self) -> bool:
        if not all(each.connected and each.settled for each in self.users):
            return False  # before all logs are read
        events = len(self._published())
        return all(each.consumed >= events for each in self.users)

    def _publish_everywhere(self) -> None:
        for device in self.users:
            for _ in range(3):
                self._publish(device)

    def _publish(self, device: MatrixDevice) -> None:
        if device.running:
            device.publish({"Price": 20})

    def _begin_activity(self) -> None:
        """Let the mover begin what it does at the change, which comes next."""
        match self.cell.activity:
            case Activity.TRANSACTION:
                self.mover.refresh()
                self._run(_IN_FLIGHT_S)
            case Activity.DRAINING:
                for _ in range(_BURST):
                    self._publish(self.other)
                self.world.run(self.world.now + _BEGIN_S, lambda: self.mover.consumed > _BURST // 4)
            case Activity.PUBLISHING:
                for number in range(_STREAM):
                    for device in self.users:
                        self.world.after(number / 60, partial(self._publish, device))
                self._run(0.5)
                self.world.run(self.world.now + _PAUSE_S, lambda: self.mover.unanswered > 0)

    def _is_active(self) -> bool:
        match self.cell.activity:
            case Activity.IDLE:
                return self._is_at_rest()
            case Activity.TRANSACTION:
                return self.mover.is_updating
            case Activity.DRAINING:
                return self.fleet.servers[self._home].state.sessions[self._session].waiting > _BURST // 4
            case Activity.PUBLISHING:
                return self.mover.unanswered > 0

    # Changes --------------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        mover = self.mover
        match self.cell.change:
            case Change.NEW_ADDRESS:
                mover.move()
            case Change.BOTH_ENDS:
                for device in self.users:
                    device.move()
            case Change.PORT_REBOUND:
                mover.rebind_nat()
            case Change.INTO_NAT | Change.BETWEEN_NATS:
                mover.nat = self._new_nat()
                mover.move()
            case Change.OUT_OF_NAT:
                mover.nat = None
                mover.move()
            case Change.OFF_AND_ON | Change.DEVICE_SWITCHED:
                mover.kill()
                if self.cell.change is Change.DEVICE_SWITCHED:
                    mover.replace()
                self.world.after(_AWAY_S, mover.start)
            case Change.SERVER_CHANGED:
                self.operator.ask(MoveSession(0, mover.uri, "default", self._target))
            case Change.SERVER_DRAINED:
                self.operator.ask(Drain(0, on=True))
            case Change.SERVER_KILLED:
                self.fleet.servers[self._home].crash(lose_rows=self.world.random.random() < 0.5)
                self.world.after(_AWAY_S, self.fleet.servers[self._home].start)
            case Change.CHANNEL_MOVED:
                self._leader = _other(self._leader)
                self.operator.ask(MoveGroup(0, SUBJECT, self._leader))

    @property
    def _session(self) -> str:
        """The key of the mover's session."""
        return session_key(self.mover.uri, "default")

    @property
    def _target(self) -> str:
        """The server to which the mover's session goes, if it does."""
        return _other(self._home)

    # Checks ---------------------------------------------------------------------------------------------------------

    def _published(self) -> dict[int, records.Published]:
        """Return the events of all logs by number, in the order of the channel, which has one leader at a time."""
        logs = (server.disk.records() for server in self.fleet.servers.values())
        published = [record for log in logs for record in log if isinstance(record, records.Published)]
        found: dict[int, records.Published] = {}
        for record in sorted(published, key=lambda record: record.at_us):
            number = record.event["Uid"]
            assert isinstance(number, int)
            if number in found:
                self.problems.append(f"event {number} was published twice")
            found[number] = record
        return found

    def _check_promises(self) -> None:
        published = self._published()
        for device in self.users:
            self.problems += [f"{device.name}: {problem}" for problem in self._check_device(device, published)]
        self.problems += self._check_place()

    def _check_device(self, device: MatrixDevice, published: dict[int, records.Published]) -> Iterator[str]:
        yield from device.problems
        yield from check_items(device, device.committed.items.get(1, ()), list(published))
        own = [number for number, record in published.items() if record.acceptance.user == device.uri]
        if own != sorted(own):
            yield "its events are out of order"
        for number, identity in device.accepted.items():
            if number not in published or published[number].acceptance.id != identity:
                yield f"event {number} was acknowledged as {identity} and is not there"
        if device.way != self.cell.way or device.sends_to not in self._destinations:
            yield f"sends to {device.sends_to} by {device.way}"

    def _check_place(self) -> Iterator[str]:
        """Check that the mover's session is at one server, the right one, and the channel too."""
        wanted = self._target if self.cell.change in TO_OTHER_SERVER else self._home
        for name, server in self.fleet.servers.items():
            session = server.state.sessions.get(self._session)
            is_there = session is not None and not session.is_fenced and bool(session.subscriptions)
            if is_there is not (name == wanted):
                yield f"the mover's session is{'' if is_there else ' not'} at {name}"
            if (leader := self.fleet.channels[name].leader(SUBJECT)) != self._leader:
                yield f"{leader} leads the channel, says {name}"


def _other(server: str) -> str:
    """Return the other server."""
    return next(name for name in SERVERS if name != server)
