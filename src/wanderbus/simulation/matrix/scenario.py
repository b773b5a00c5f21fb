"""One cell of the mobility matrix: two users, of whom one moves, and two servers of one domain, or of two (SPEC U-09).

The cell is that of the seed: seed ``n`` runs cell ``n`` modulo their number, so all are run by as many seeds in a row.
Both users subscribe to everything and publish, so events flow in both directions. Each event that a log has must be
consumed once by each, in the order of the channel, and each acknowledged one is in a log. If the session moves to
another domain, each server is alone in its own, and events of each come in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Final

from wanderbus.broker.state.rows import session_key
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.protocol import Drain, MoveGroup, MoveSession
from wanderbus.simulation.federation.lone_servers import LoneServers
from wanderbus.simulation.fleet import ServerFleet, ip_of
from wanderbus.simulation.matrix.cells import CELLS, Activity, Change, Path
from wanderbus.simulation.matrix.device import MatrixDevice
from wanderbus.simulation.matrix.learning_relay import LearningRelay
from wanderbus.simulation.matrix.truth import MatrixTruth
from wanderbus.simulation.nat.nat import NAT
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.relay.relay_host import NG_PORT, RelayHost
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.server import DOMAIN, FINGERPRINT
from wanderbus.simulation.system.traveller import SUBJECT

PORTS: Final = range(30_000, 30_200)
SERVERS: Final = ("s1", "s2")
RELAY_IPS: Final = {"s1": "10.0.0.9", "s2": "10.0.0.8"}
"""Address of the relay of each domain, by its server; a domain of both servers has the first one."""
DOMAINS: Final = {"s1": DOMAIN, "s2": "other.test"}
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
"""Events that each device publishes around the change, in a second."""
_AT_ONCE: Final = 4
"""Events at each of these moments if the session moves to another domain: some are always on their way there."""
_MOVE_S: Final = 0.3
"""Longest time from the begin of a move to another domain until an address changes, too."""
_BEHIND_NAT: Final = frozenset({Change.PORT_REBOUND, Change.OUT_OF_NAT, Change.BETWEEN_NATS, Change.DOMAIN_AND_PORT})
"""Changes of a device that is behind a NAT at first."""
TO_OTHER_DOMAIN: Final = frozenset(each for each in Change if each.startswith("domain-"))
TO_OTHER_SERVER: Final = TO_OTHER_DOMAIN | {Change.SERVER_CHANGED, Change.SERVER_DRAINED}


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
        self._logs_read: tuple[tuple[int, int], ...] = ()
        """Lengths of the logs when they were read last, and the lives of their servers."""
        self._latest: MatrixTruth
        self._home = draw.choice(SERVERS)
        self._rudp = RudpConfig()
        self._make_servers()
        self.mover = self._device("mover", 1, self._home)
        self.other = self._device("other", 2, draw.choice(SERVERS))
        self.operator = self._device(_OPERATOR, 3, self._home, expressions=())
        self.users = self.mover, self.other
        if self.cell.change in _BEHIND_NAT:
            self.mover.nat = self._new_nat()

    def _make_servers(self) -> None:
        """Make two servers of one domain, or of two, and the relays."""
        is_far, is_direct = self.cell.change in TO_OTHER_DOMAIN, self.cell.path is Path.DIRECT
        self.domains = DOMAINS if is_far else dict.fromkeys(SERVERS, DOMAIN)
        domain = self.domains[self._home]
        config = BrokerConfig(unacknowledged_max=8, roles={f"sip:{_OPERATOR}@{domain}": "administrator"})
        self._relay_ips = RELAY_IPS if is_far else dict.fromkeys(SERVERS, RELAY_IPS[SERVERS[0]])
        relays = {name: () if is_direct else ((ip, NG_PORT),) for name, ip in self._relay_ips.items()}
        basics = self.world, self.network, config, self._rudp
        self.fleet: ServerFleet | None = None
        """The servers of one domain."""
        self.far: LoneServers | None = None
        """The servers of two domains."""
        if is_far:
            self.far = LoneServers(*basics, domains=DOMAINS, types=frozenset({SUBJECT}), relays=relays)
            self.servers = self.far.servers
        else:
            self.fleet = ServerFleet(*basics, names=SERVERS, leaders=SERVERS, relays=relays[SERVERS[0]])
            self.servers = self.fleet.servers
        kind = LearningRelay if self.cell.path is Path.RTPENGINE else RelayHost
        places = dict.fromkeys(self._relay_ips.values())
        self.relays = [kind(ip, PORTS, self.world, self.network, fingerprint=FINGERPRINT) for ip in places]
        self._leader = "" if self.fleet is None else self.fleet.channels[self._home].leader(SUBJECT)
        """The server that is to lead the channel."""

    def _device(self, name: str, number: int, home: str, **options: Any) -> MatrixDevice:
        given: dict[str, Any] = {"expressions": ("",), "resumes": True, "think_s_max": 0.03} | options
        if self.far is not None:
            given["transport"] = "TLS"  # between domains, servers vouch for users over TLS alone
        return MatrixDevice(
            *(name, number, self.world, self.network, self._rudp),
            home=home,
            way=self.cell.way,
            domain=self.domains[home],
            **given,
        )

    def _new_nat(self) -> NAT:
        self._nats += 1
        return NAT(f"203.0.113.{self._nats}", _NAT_IDLE_S, self.world, self.network)

    def counts(self) -> dict[str, float]:
        relays = [each.relay for each in self.relays]
        relayed = [each.figures.datagrams for each in relays]
        relayed += [side.figures.datagrams for each in relays for side in each.sides.values()]
        return {
            "events": len(self._truth().published),
            "notifications": sum(each.consumed for each in self.users),
            "relayed": sum(relayed),
        }

    # Course ---------------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        for server in self.servers.values():
            server.start()
        self._run(_PAUSE_S)
        for device in (*self.users, self.operator):
            device.start()
        self._reach("begun", self._has_begun, _BEGIN_S)
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
        if self.far is not None:
            self._move_in_other_domain()
        self._publish_everywhere()
        self._reach("at rest at the end", self._is_at_rest, _SETTLE_S)

    def _move_in_other_domain(self) -> None:
        """Let the mover have a new address: its update goes to the other domain by way of the proxies of both."""
        before = self.mover.interruptions
        self.mover.move()
        self._reach("heard of in the other domain", lambda: not self.mover.is_updating, _AWAY_S)
        if self.mover.interruptions > before:
            self.problems.append("the mover had to call again in the other domain")

    def _run(self, seconds: float) -> None:
        end = self.world.now + seconds
        self.world.at(end, lambda: None)
        self.world.run(end)

    def _reach(self, what: str, done: Callable[[], bool], seconds: float) -> None:
        self.world.run(self.world.now + seconds, done)
        if not done():
            self.problems.append(f"not {what} within {seconds:g} s")

    def _has_begun(self) -> bool:
        if not self.operator.connected or not all(each.settled for each in self.users):
            return False
        return not any(self._check_filters(self._home))

    def _is_at_rest(self) -> bool:
        if not all(each.connected and each.settled for each in self.users):
            return False  # before all logs are read
        events = len(self._truth().published)
        return all(each.consumed >= events for each in self.users)

    def _publish_everywhere(self) -> None:
        for device in self.users:
            self._publish(device, 3)

    def _publish(self, device: MatrixDevice, count: int) -> None:
        for _ in range(count if device.running else 0):
            device.publish({"Price": 20})

    def _begin_activity(self) -> None:
        """Let the mover begin what it does at the change, which comes next."""
        at_once = 1 if self.far is None else _AT_ONCE
        match self.cell.activity:
            case Activity.TRANSACTION:
                self.mover.refresh()
                self._run(_IN_FLIGHT_S)
            case Activity.DRAINING:
                self._publish(self.other, _BURST)
                self.world.run(self.world.now + _BEGIN_S, lambda: self.mover.consumed > _BURST // 4)
            case Activity.PUBLISHING:
                for number in range(_STREAM):
                    for device in self.users:
                        self.world.after(number / _STREAM, partial(self._publish, device, at_once))
                self._run(0.5)
                self.world.run(self.world.now + _PAUSE_S, lambda: self.mover.unanswered > 0)

    def _is_active(self) -> bool:
        match self.cell.activity:
            case Activity.IDLE:
                return self._is_at_rest()
            case Activity.TRANSACTION:
                return self.mover.is_updating
            case Activity.DRAINING:
                return self.servers[self._home].state.sessions[self._session].waiting > _BURST // 4
            case Activity.PUBLISHING:
                return self.mover.unanswered > 0

    # Changes --------------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        if self.cell.change in TO_OTHER_DOMAIN:
            draw, server = self.world.random, self._target
            target = draw.choice([self.domains[server], f"{self.domains[server]}/{server}"])
            self.operator.ask(MoveSession(0, self.mover.uri, "default", target))
            self.world.after(draw.uniform(0.0, _MOVE_S), self._change_address)
        else:
            self._change_address()
            self._change_server()

    def _change_address(self) -> None:
        mover = self.mover
        match self.cell.change:
            case Change.NEW_ADDRESS:
                mover.move()
            case Change.BOTH_ENDS | Change.DOMAIN_AND_BOTH_ENDS:
                for device in self.users:
                    device.move()
            case Change.PORT_REBOUND | Change.DOMAIN_AND_PORT:
                mover.rebind_nat()
            case Change.INTO_NAT | Change.BETWEEN_NATS | Change.DOMAIN_AND_NAT:
                mover.nat = self._new_nat()
                mover.move()
            case Change.OUT_OF_NAT:
                mover.nat = None
                mover.move()

    def _change_server(self) -> None:
        mover = self.mover
        match self.cell.change:
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
                self.servers[self._home].crash(lose_rows=self.world.random.random() < 0.5)
                self.world.after(_AWAY_S, self.servers[self._home].start)
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

    def _truth(self) -> MatrixTruth:
        """Return what the logs say now."""
        logs = tuple([(len(each.disk.log), each.crashes) for each in self.servers.values()])
        if logs != self._logs_read:
            self._logs_read, self._latest = logs, MatrixTruth(self.servers, is_one_channel=self.far is None)
        return self._latest

    def _check_promises(self) -> None:
        truth = self._truth()
        self.problems += truth.problems
        for device in self.users:
            self.problems += [f"{device.name}: {problem}" for problem in truth.check(device)]
            self.problems += [f"{device.name}: {problem}" for problem in self._check_path(device)]
        self.problems += self._check_place()

    def _check_path(self, device: MatrixDevice) -> Iterator[str]:
        yield from device.problems
        if device.way != self.cell.way or device.sends_to not in self._destinations(device):
            yield f"sends to {device.sends_to} by {device.way}"

    def _destinations(self, device: MatrixDevice) -> list[str]:
        """Return the addresses to which a device may send in the end; a relay is that of its home."""
        if self.cell.path is not Path.DIRECT:
            return [self._relay_ips[device.home]]
        if self.far is None:
            return [ip_of(name) for name in SERVERS]
        return [ip_of(self._target if device is self.mover else device.home)]

    def _check_place(self) -> Iterator[str]:
        """Check that the mover's session is at one server, the right one, and the channel and the filters too."""
        wanted = self._target if self.cell.change in TO_OTHER_SERVER else self._home
        for name, server in self.servers.items():
            session = server.state.sessions.get(self._session)
            is_there = session is not None and not session.is_fenced and bool(session.subscriptions)
            if is_there is not (name == wanted):
                yield f"the mover's session is{'' if is_there else ' not'} at {name}"
            if self.fleet is not None and (leader := self.fleet.channels[name].leader(SUBJECT)) != self._leader:
                yield f"{leader} leads the channel, says {name}"
        yield from self._check_filters(wanted)

    def _check_filters(self, mover_is_at: str) -> Iterator[str]:
        """Check that each domain has filters in the other one if it has a user, and none otherwise (SPEC L-05)."""
        if self.far is None:
            return
        inhabited = {mover_is_at, self.other.home}
        for name in SERVERS:
            other, filters = _other(name), self.far.filters(name, _other(name))
            if filters != (other in inhabited):
                yield f"{name} has {filters} filters of the domain of {other}"


def _other(server: str) -> str:
    """Return the other server."""
    return next(name for name in SERVERS if name != server)
