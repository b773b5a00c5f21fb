"""One life of a broker on a recorded disk: devices that publish, subscribe, consume and leave, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from faults.recording import Promise, RecordedDisk, RecordedVFS, Recorder
from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    Append,
    Appended,
    LinkClosed,
    LinkOpened,
    MessageArrived,
    SendOnLink,
)
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import StorageError
from wanderbus.event import Event
from wanderbus.machine import ClockRead, Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import SERVER_LOG
from wanderbus.runtime.files.disk import is_full
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.committer import GroupCommit, LogEntry, Rows
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.log_readers import LogReader, load_reader, reader_files, register_reader
from wanderbus.server.log_retention import LogRetention
from wanderbus.subscription import QueuePolicy

VFS: Final = "recorded"
SUBJECT: Final = "Trade"
PUBLISHES_REMEMBERED: Final = 32
EXPRESSIONS: Final = ("", "n > 50", "k == 1", "k == 2 and n < 400")
READER: Final = "job"
READER_EXPIRES_S: Final = 1e9
START_US: Final = 1_700_000_000_000_000


@dataclass
class Device:
    """A device of a user and the state that its agent keeps across lives of the broker."""

    user: str
    name: str
    epoch: int
    link: int = 0
    """0 while the device is away."""
    published: int = 0
    unanswered: dict[int, Event] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    """Last notification sent on this link, by reader."""


@dataclass
class World:
    """State that survives from one life of the broker to the next."""

    random: Random
    devices: list[Device]
    wall_us: int = START_US
    links: int = 0
    history: list[LogEntry] = field(default_factory=list)
    """Every record that survived, from the first one on; the log may hold only the last ones."""

    @classmethod
    def begin(cls, random: Random) -> World:
        """Return three users, one with two devices."""
        names = (("a", "a1"), ("b", "b1"), ("b", "b2"), ("c", "c1"))
        return cls(random, [Device(f"sip:{user}@x", name, 1 + index) for index, (user, name) in enumerate(names)])


class Life:
    """A broker from its start to its sudden end."""

    def __init__(self, world: World, root: Path, recorder: Recorder) -> None:
        self.handed: list[LogEntry] = []
        """Every record since the first life: those that survived, and those of this life."""
        self._world = world
        self._random = world.random
        self._recorder = recorder
        self._requests = 0
        self._vfs = RecordedVFS(VFS, recorder)
        self._disk = RecordedDisk(recorder)
        self._files = ServerFiles.open(
            root, segment_bytes_max=self._random.choice((2_000, 6_000, 30_000)), disk=self._disk, vfs=VFS
        )
        self.server = self._files.identity.server
        (state,) = self._files.load_states(lambda: [BrokerState(self.server, PUBLISHES_REMEMBERED)])
        self.handed += world.history[: state.offset]
        self._promise(state.offset)
        queue = QueuePolicy(notifications_max=8, bytes_max=2**20, when_full="drop_oldest")
        config = BrokerConfig(server=self.server, queue=queue, publishes_remembered=PUBLISHES_REMEMBERED)
        self._broker = Broker(state, config)
        self._group = GroupCommit({SERVER_LOG: self._files.log}, self._durable)
        keep = Keep(bytes=self._random.choice((0, 0, 5_000)))
        self._retention = LogRetention(self._files.log, self._files.store, keep, self._disk)
        self._unreported: list[int] = []
        """Durable offsets that the broker does not know of yet."""
        for device in world.devices:
            device.link = 0

    def live(self, steps: int) -> int:
        """Do ``steps`` actions: first the start, last a commit that is not acknowledged.

        Return the number of disk steps before that commit.
        """
        self._give(ServerStarted())
        for _ in range(steps):
            self._world.wall_us += self._random.randint(1, 200_000)
            self._random.choices(*zip(*self._doings(), strict=True))[0]()
        before = len(self._recorder.steps)
        self._try_to_commit()
        return before

    def close(self) -> None:
        """Close the files; the effects of that come after the end of this life."""
        self._files.close()

    def _doings(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self._publish, 40),
            (self._commit, 20),
            (self._save, 8),
            (self._take, 12),
            (self._come, 8),
            (self._go, 2),
            (self._subscribe, 3),
            (self._unsubscribe, 1),
            (self._fill, 2),
            (self._retain, 4),
            (self._compact, 4),
            (self._register, 4),
        ]

    def _publish(self) -> None:
        if (device := self._present()) is None:
            return
        device.published += 1
        text = "x" * self._random.choice((0, 20, 200, 1_500))
        event = Event(SUBJECT, {"n": self._random.randint(0, 500), "k": self._random.randint(0, 3), "text": text})
        device.unanswered[device.published] = event
        self._say(device, protocol.Publish(device.published, event))

    def _take(self) -> None:
        if (device := self._present()) is not None and device.sent:
            reader, number = self._random.choice(list(device.sent.items()))
            self._say(device, protocol.NotifyAck(reader, number))

    def _come(self) -> None:
        away = [device for device in self._world.devices if not device.link]
        if not away:
            return
        device = self._random.choice(away)
        self._world.links += 1
        device.link, device.sent = self._world.links, {}
        self._give(LinkOpened(device.link, device.user, device.name))
        self._say(device, protocol.Attach(device.epoch, "default", None, True))
        # Some subscriptions are read, some are not.
        known = [row.subscription.id for row in self._broker.state.subscriptions.values()]
        readers = [each for each in enumerate(known, 1) if self._random.random() < 0.7]
        self._say(device, protocol.Read(tuple(protocol.Reader(*each) for each in readers)))
        for number, event in list(device.unanswered.items()):
            self._say(device, protocol.Publish(number, event))

    def _go(self) -> None:
        if (device := self._present()) is not None:
            link, device.link = device.link, 0
            self._give(LinkClosed(link, "it does not answer"))

    def _subscribe(self) -> None:
        if (device := self._present()) is not None:
            self._requests += 1
            expression = self._random.choice(EXPRESSIONS)
            self._say(device, protocol.Subscribe(self._requests, SUBJECT, expression, None, (), False, reader=1_000))

    def _unsubscribe(self) -> None:
        rows = list(self._broker.state.subscriptions.values())
        device = self._present()
        if device is not None and (owned := [row for row in rows if row.subscription.owner == device.user]):
            self._requests += 1
            self._say(device, protocol.Unsubscribe(self._requests, self._random.choice(owned).subscription.id))

    def _commit(self) -> None:
        self._try_to_commit()
        reported, self._unreported = self._unreported, []
        for durable in reported:
            self._give(Appended(SERVER_LOG, durable))

    def _try_to_commit(self) -> None:
        rows: Rows | None = None
        try:
            self._group.commit()
            # The thread that saves may take long, while other records follow.
            if self._random.random() < 0.8 and (rows := self._group.take_rows()):
                self._files.store.save(*rows)
        except OSError as error:
            if not is_full(error):
                raise
            if rows is not None:
                self._group.give_back(rows)

    def _fill(self) -> None:
        self._disk.fill(self._random.randint(0, 5), self._random.randint(1, 3))

    def _retain(self) -> None:
        self._retention.run(self._world.wall_us)
        if self._retention.fault is not None:
            raise self._retention.fault

    def _compact(self) -> None:
        self._files.store.compact(0)

    def _register(self) -> None:
        """Let a reader of the log register after it has read some of the durable records."""
        log = self._files.log
        known = [reader.offset for path in reader_files(log.directory) if (reader := load_reader(path))]
        first = max(known, default=log.oldest_offset)
        offset = self._random.randint(*sorted((first, log.durable_offset)))
        # On a full disk the earlier registration stays.
        with suppress(StorageError):
            register_reader(log.directory, LogReader(READER, offset, self._world.wall_us, READER_EXPIRES_S), self._disk)

    def _save(self) -> None:
        """Save as the server does: the current rows, behind all records that they reflect; committed together later."""
        self._group.save(self._broker.state.changes(), self._broker.state.offset)

    def _durable(self, log: str, durable: int) -> None:
        self._promise(durable)
        self._unreported.append(durable)

    def _promise(self, durable: int) -> None:
        self._recorder.steps.append(Promise(durable, len(self.handed)))

    def _present(self) -> Device | None:
        present = [device for device in self._world.devices if device.link]
        return self._random.choice(present) if present else None

    def _say(self, device: Device, message: protocol.AgentMessage) -> None:
        self._give(MessageArrived(device.link, protocol.encode(message)))

    def _give(self, *inputs: Input) -> None:
        now = (self._world.wall_us - START_US) / 1e6
        for output in self._broker.step([ClockRead(self._world.wall_us), *inputs], now):
            self._perform(output)

    def _perform(self, output: Output) -> None:
        match output:
            case Append(log=log, entries=entries):
                self.handed += entries
                self._group.append(log, entries)
            case SendOnLink(link=link, payload=payload):
                device = next((each for each in self._world.devices if each.link == link), None)
                if device is not None:
                    self._on_message(device, protocol.decode_from_broker(payload))

    def _on_message(self, device: Device, message: protocol.BrokerMessage) -> None:
        match message:
            case protocol.PublishAccepted(number=number, id=identity):
                # An application relies on this answer, whatever the log contains.
                self._promise(identity.number + 1)
                device.unanswered.pop(number, None)
            case protocol.Notify(number=number, readers=readers):
                device.sent |= dict.fromkeys(readers, number)
            case protocol.NotifyGap(last=number, reader=int(reader)):
                device.sent[reader] = number
