"""Host of a simulated broker: its disk, its timers, and links to devices, which are slow and break."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import Append, LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.storage import SimulatedStorage
from wanderbus.simulation.timers import Timers
from wanderbus.simulation.wire import Wire
from wanderbus.simulation.world import World


class BrokerHost(ABC):
    """A broker that crashes and starts again over its disk; a subclass makes it, and what is around it.

    :param save_s: shortest and longest pause until the rows are saved again
    """

    def __init__(self, world: World, config: BrokerConfig, *, save_s: tuple[float, float]) -> None:
        self.name = config.server
        self.config = config
        self.storage = SimulatedStorage(world, config, self.feed, save_s=save_s)
        self.disk, self.engine = self.storage.disk, self.storage.engine
        self.crashes = 0
        self.problems: list[str] = []
        self.moments: dict[int, int] = {}
        """Moment of the world in which each record was written, by offset."""
        self.walls_us: dict[int, int] = {}
        """Wall clock when each record was written, by offset."""
        self.broker: Broker
        """The broker of this life; while the server is down, that of the last one."""
        self._world = world
        self._timers = Timers(world, self._fire)
        self._last_link = 0
        self._wires: dict[int, Wire] = {}
        """Wire of each open link to a device."""
        self._open: dict[int, tuple[str, str]] = {}
        """User and device of every link that the broker has to regard as open."""

    @property
    def alive(self) -> bool:
        """Return whether the server runs."""
        return self.storage.is_up

    @property
    def wall_us(self) -> int:
        """Return the wall clock of the server."""
        return self._world.wall_us

    # Lives ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk."""
        state = self.storage.start()
        self._note("starts")
        self._boot(state)
        self.storage.save_later(state)

    @abstractmethod
    def _boot(self, state: BrokerState) -> None:
        """Make the broker of a new life, and start it."""

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self.problems += self.check_rows()
        self.crashes += 1
        self.storage.stop()
        self._note("crashes")
        self._timers.clear()
        self._open.clear()
        wires, self._wires = list(self._wires.values()), {}
        for wire in wires:
            wire.cut()
            wire.on_drop()
        self.storage.crash(lose_rows=lose_rows)

    # Machine --------------------------------------------------------------------------------------------------------

    def feed(self, *inputs: Input) -> None:
        """Feed ``inputs`` to the broker, the wall clock first, and perform what follows."""
        if self.alive:
            self._step([ClockRead(self.wall_us), *inputs])

    def _step(self, inputs: Sequence[Input]) -> None:
        """Let the broker process ``inputs``."""
        for output in self.broker.step(inputs, self._world.now):
            self._perform(output)

    def _fire(self, key: Hashable) -> None:
        self.feed(TimerFired(key))

    def _perform(self, output: Input | Output) -> None:
        match output:
            case SendOnLink(link=link, payload=payload):
                self._send(link, payload)
            case LinkDropped(link=link, reason=reason):
                self._world.after(0.0, lambda: self._drop(link, reason))
            case SetTimer(key=key, at=at):
                self._timers.set(key, at)
            case CancelTimer(key=key):
                self._timers.cancel(key)
            case Append(entries=entries):
                for offset, _, _ in entries:
                    self.moments[offset], self.walls_us[offset] = self._world.moment(), self.wall_us
                self.storage.perform(output)
            case Output() if not self.storage.perform(output):
                self._report(output)

    def _report(self, output: Output) -> None:
        """Take an output that is not for a link, the disk, the engine or a clock."""
        return

    # Links to devices -----------------------------------------------------------------------------------------------

    def next_link(self) -> int:
        """Return the number of a new link, in rising order."""
        self._last_link += 1
        return self._last_link

    def open(
        self, user: str, device: str, delay_s: float, receive: Callable[[int, Sequence[bytes]], None]
    ) -> Wire | None:
        """Open a link to a device, which replaces its earlier one; None while the server is down."""
        if not self.alive:
            return None
        link = self.next_link()
        for other in [each for each, whose in self._open.items() if whose == (user, device)]:
            del self._open[other]
            self._wires.pop(other).cut()
        wire = self._wires[link] = Wire(
            self._world,
            link,
            delay_s,
            lambda payloads: self._arrived(link, payloads),
            lambda payloads: receive(link, payloads),
        )
        self._open[link] = user, device
        self._note(f"link {link} opens to {user}/{device}")
        self.feed(LinkOpened(link, user, device))
        return wire

    def close(self, link: int, reason: str) -> None:
        """Report a link to a device as lost, unless that is known already."""
        if self._wires.pop(link, None) is not None:
            self._open.pop(link, None)
            self._note(f"link {link} closes: {reason}")
            self.feed(LinkClosed(link, reason))

    def _arrived(self, link: int, payloads: Sequence[bytes]) -> None:
        """Take messages of a device."""
        self.feed(*[MessageArrived(link, payload) for payload in payloads])

    def _send(self, link: int, payload: bytes) -> None:
        """Send a message to a device."""
        self._check_durable(protocol.decode_from_broker(payload))
        if wire := self._wires.get(link):
            wire.down.send(payload)

    def _drop(self, link: int, reason: str) -> None:
        """Close the link to a device for the broker."""
        if wire := self._wires.get(link):
            wire.cut()
            wire.on_drop()
            self.close(link, reason)

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_durable(self, message: protocol.BrokerMessage) -> None:
        """Note an event that is announced before it is durable."""
        match message:
            case protocol.Notify(id=event) | protocol.NotifyServer(id=event) | protocol.PublishAccepted(id=event):
                if event.origin == self.name and event.number >= self.disk.durable:
                    self.problems.append(f"{event} was announced before it was durable")

    def check_rows(self) -> Iterator[str]:
        """Yield the differences between live state, rows with the rest of the log, and the log alone (DESIGN 5.1)."""
        if self.alive:
            for problem in self.storage.check_rows(self.broker.state):
                yield f"{self.name}: {problem}"

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)
