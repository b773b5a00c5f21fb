"""A broker on a test's desk: literal inputs in, messages out, a log and a state file of plain lists."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.history.piece import find_position, read_piece
from wanderbus.broker.messages import (
    Append,
    Appended,
    HistoryFailed,
    HistoryRead,
    HistoryWanted,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    OffsetFound,
    OffsetWanted,
    SendOnLink,
    UserStatusChanged,
)
from wanderbus.broker.queues.return_pace import TIMER
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.state.drops import drops_of
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event, Position, Value
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    AgentMessage,
    Attach,
    BrokerMessage,
    Done,
    Notify,
    NotifyAck,
    NotifyGap,
    Publish,
    PublishAccepted,
    Read,
    Reader,
    RequestRefused,
    Subscribe,
)
from wanderbus.records import SERVER_LOG, AnyRecord, decode_record
from wanderbus.segments import Frame
from wanderbus.subscription import Format, QueuePolicy, Restriction, Since, Subscription

START_US = 1_700_000_000_000_000
ALICE, BOB = "sip:alice@example.org", "sip:bob@example.org"
SUBJECT = "Trade"

Kind = TypeVar("Kind", bound=BrokerMessage)
RecordKind = TypeVar("RecordKind", bound=AnyRecord)


def raw(event: Event) -> msgspec.Raw:
    """Return an event as servers send it."""
    return msgspec.Raw(protocol.encode_event(event))


def rows_of(state: BrokerState) -> dict[str, dict[str, bytes]]:
    """Every row of a state as the store would hold it: two states are equal when these are."""
    return {table.name: {key: msgspec.json.encode(row) for key, row in table.items()} for table in state.tables}


def named(messages: Sequence[BrokerMessage]) -> list[object]:
    """Stream of a device: the ``N`` of each event, or ``(first, last)`` of a gap."""
    heard: list[object] = []
    for message in messages:
        match message:
            case Notify(event=event):
                heard.append(protocol.decode_event(bytes(event))["N"])
            case NotifyGap(first=first, last=last):
                heard.append((first, last))
    return heard


class Desk:
    """A broker, its disk, and its outputs; its writes are durable at once unless ``held``."""

    def __init__(self, config: BrokerConfig | None = None, *, log: Sequence[bytes] = ()) -> None:
        self.config = config or BrokerConfig()
        self.log = list(log)
        self.rows: dict[str, dict[str, bytes]] = {}
        self.rows_offset = 0
        self.now = 0.0
        self.offset_us = 0
        """Change of the wall clock."""
        self.held = False
        self.reads_history = True
        """Pieces of history are read at once; otherwise they wait in ``pieces``."""
        self.pieces: list[HistoryWanted] = []
        self.history_failures: list[HistoryFailed] = []
        self.log_begins = 0
        """Offset of the oldest record that is kept for readers of the past."""
        self.out: dict[int, list[BrokerMessage]] = {}
        self.statuses: list[UserStatusChanged] = []
        self.timers: dict[Hashable, float] = {}
        self.goes_on = True
        """True if each slice of a backlog follows the last one at once."""
        self.dropped_links: list[LinkDropped] = []
        self._requests = 0
        self._published: dict[int, int] = {}
        self._links = 0
        self.reading: dict[int, dict[str, int]] = {}
        """Handle of each subscription that is read, by link."""
        self._reading_all: dict[int, tuple[str, str]] = {}
        """Links on which every subscription of a session is read, also later ones."""
        self._handles = 0
        self.start()

    @property
    def wall_us(self) -> int:
        return START_US + round(self.now * 1e6) + self.offset_us

    # The world around the broker --------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk; all earlier links are closed."""
        self._reading_all.clear()
        self.pieces.clear()
        self.broker = Broker(self.recovered(), self.config)
        self.timers.clear()
        self.give(ServerStarted())

    def recovered(self, *, from_log_alone: bool = False) -> BrokerState:
        """The state that the disk gives."""
        state = BrokerState(self.config.server, self.config.publishes_remembered)
        if not from_log_alone:
            state.load({name: rows.items() for name, rows in self.rows.items()}, self.rows_offset)
        for offset, payload in enumerate(self.log[state.offset :], state.offset):
            state.apply(offset, decode_record(payload))
        return state

    def save(self) -> None:
        """Write the state file up to the end of the log."""
        state = self.broker.state
        for table, rows in state.changes().items():
            stored = self.rows.setdefault(table, {})
            for key, row in rows.items():
                if row is None:
                    stored.pop(key, None)
                else:
                    stored[key] = row
        self.rows_offset = state.offset

    def restart(self, *, with_rows: bool = False) -> None:
        """Crash and boot; every link is gone. Without rows the state file is lost."""
        if not with_rows:
            self.rows, self.rows_offset = {}, 0
        self.start()

    def step(self, *inputs: Input) -> list[Output]:
        """Step the broker without executing its outputs."""
        return list(self.broker.step([ClockRead(self.wall_us), *inputs], self.now))

    def give(self, *inputs: Input) -> None:
        """Step the broker and execute its outputs in order."""
        self.perform(self.step(*inputs))

    def perform(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case SendOnLink(link=link, payload=payload):
                    assert len(payload) <= 65_536
                    self.out.setdefault(link, []).append(protocol.decode_from_broker(payload))
                case Append(entries=entries):
                    assert [offset for offset, _, _ in entries] == list(
                        range(len(self.log), len(self.log) + len(entries))
                    )
                    self.log.extend(payload for _, _, payload in entries)
                    if not self.held:
                        self.give(Appended(SERVER_LOG, len(self.log)))
                case OffsetWanted():
                    self.give(self._offset(output))
                case HistoryWanted():
                    self.pieces.append(output)
                    if self.reads_history:
                        self.read_history()
                case HistoryFailed():
                    self.history_failures.append(output)
                case LinkDropped():
                    self.dropped_links.append(output)
                case UserStatusChanged():
                    self.statuses.append(output)
                case SetTimer(key=key, at=at):
                    self.timers[key] = at
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
        if self.timers.pop(("turn",), None) is not None:
            self.give(TimerFired(("turn",)))
        if self.goes_on and self.timers.get(TIMER, self.now + 1) <= self.now:
            del self.timers[TIMER]
            self.give(TimerFired(TIMER))

    @property
    def frames(self) -> list[Frame]:
        """The log as its readers see it."""
        return [Frame(n, decode_record(payload).at_us, payload, 0) for n, payload in enumerate(self.log)]

    def read_history(self) -> None:
        """Answer the piece that was requested."""
        wanted = self.pieces.pop(0)
        ours = (wanted.server, wanted.incarnation) == (self.broker.state.server, self.broker.state.incarnation)
        if wanted.first < self.log_begins or not ours:
            self.give(HistoryRead(wanted.piece, wanted.first, failed=f"the log has no record {wanted.first}"))
        else:
            assert wanted.end <= len(self.log)
            self.give(read_piece(wanted, self.frames[wanted.first :]))

    def _offset(self, wanted: OffsetWanted) -> OffsetFound:
        since, frames = wanted.since, self.frames[self.log_begins :]
        if since.at_us is not None:
            found = next((each.offset for each in frames if each.at_us >= since.at_us), len(self.log))
        elif since.event is not None:
            found = since.event.number + 1
        elif since.position is not None:
            found = find_position(frames, wanted.user, wanted.session, since.position.number) or -1
        else:
            found = self.log_begins
        reason = f"the log begins at record {self.log_begins}"
        return (
            OffsetFound(wanted.lookup, None, reason) if found < self.log_begins else OffsetFound(wanted.lookup, found)
        )

    def sync(self) -> None:
        """Make everything that was written durable."""
        self.give(Appended(SERVER_LOG, len(self.log)))

    def later(self, seconds: float) -> None:
        """Advance the clock, and fire the timers that are due."""
        end = self.now + seconds
        while self.timers and min(self.timers.values()) <= end:
            key = min(self.timers, key=lambda each: self.timers[each])
            self.now = max(self.now, self.timers.pop(key))
            self.give(TimerFired(key))
        self.now = end

    # Agents -------------------------------------------------------------------------------------------------------

    def send(self, link: int, *messages: AgentMessage) -> None:
        self.give(*[MessageArrived(link, protocol.encode(message)) for message in messages])

    def open(self, user: str, device: str) -> int:
        """Open a link without sending anything on it."""
        self._links += 1
        self.give(LinkOpened(self._links, user, device))
        return self._links

    def attach(
        self,
        user: str = ALICE,
        device: str = "phone",
        *,
        epoch: int = 1,
        session: str = "default",
        resume: int | None = None,
        keep: bool = True,
        keep_queue: bool = False,
        reads: bool = True,
    ) -> int:
        """Open a link and attach it; ``resume`` is a number in the session's stream.

        The agent reads every subscription of its session, unless ``reads`` is false.
        """
        link = self.open(user, device)
        position = None if resume is None else Position(self.epoch(user, session), resume)
        self.send(link, Attach(epoch, session, position, keep, keep_queue))
        row = self.broker.state.sessions.get(f"{user}/{session}")
        if reads:
            self._reading_all[link] = user, session
        if reads and row is not None:
            self.read(link, *row.ended, *row.subscriptions)
        return link

    def read(self, link: int, *subscriptions: str) -> None:
        """Read these subscriptions on a link."""
        self.send(link, Read(tuple(Reader(self.handle(link, each), each) for each in subscriptions)))

    def handle(self, link: int, subscription: str) -> int:
        """The handle under which a subscription is read on a link."""
        self._handles += 1
        return self.reading.setdefault(link, {}).setdefault(subscription, self._handles)

    def epoch(self, user: str = ALICE, session: str = "default") -> int:
        """Return the epoch of a session's stream, 0 while there is none."""
        row = self.broker.state.sessions.get(f"{user}/{session}")
        return row.epoch if row else 0

    def close(self, link: int) -> None:
        self._reading_all.pop(link, None)
        self.give(LinkClosed(link, "the agent does not answer"))

    def publish(self, link: int, n: int, subject: str = SUBJECT, **attributes: Value) -> None:
        """Publish an event whose ``N`` is ``n``; publish numbers continue from the last one on this link."""
        number = self._published[link] = self._published.get(link, 0) + 1
        self.send(link, Publish(number, Event(subject, {"N": n, **attributes})))

    def ask(self, link: int, message: AgentMessage) -> Done | RequestRefused:
        """Send a request; return its response, which must be the last message sent on the link."""
        self.send(link, message)
        answer = self.out[link].pop()
        assert isinstance(answer, Done | RequestRefused)
        return answer

    def subscribe(
        self,
        link: int,
        expression: str = "",
        *,
        subject: str = SUBJECT,
        lifetime_s: float | None = None,
        restrictions: tuple[Restriction, ...] = (),
        this_device_only: bool = False,
        queue: QueuePolicy | None = None,
        language: str = "eci",
        format: Format = "event",
        reads: bool = True,
        since: Since | None = None,
    ) -> Done | RequestRefused:
        self._requests += 1
        request = Subscribe(
            self._requests,
            subject,
            expression,
            lifetime_s,
            restrictions,
            this_device_only,
            queue or QueuePolicy(),
            language=language,
            format=format,
            reader=self._handles + 1 if reads else None,
            since=since,
        )
        at_once, self.reads_history = self.reads_history, False
        answer = self.ask(link, request)
        self.reads_history = at_once
        while self.reads_history and self.pieces:
            self.read_history()
        if reads and isinstance(answer, Done):
            subscription = answer.subscriptions[0]
            self.handle(link, subscription.id)
            for other, whose in self._reading_all.items():
                if other != link and whose == (subscription.owner, subscription.session):
                    self.read(other, subscription.id)
        return answer

    def subscribed(self, link: int, expression: str = "", **options: Any) -> Subscription:
        """Subscribe, which must be granted; give the subscription."""
        answer = self.subscribe(link, expression, **options)
        assert isinstance(answer, Done), answer
        return answer.subscriptions[0]

    def take(self, link: int, number: int, subscription: str | None = None) -> None:
        """Take everything up to a number, of all that is read on a link or of one subscription."""
        handles = self.reading.get(link, {})
        self.send(link, *[NotifyAck(h, number) for each, h in handles.items() if subscription in (None, each)])

    def received(self, link: int, kind: type[Kind]) -> list[Kind]:
        """All messages of a kind that the broker has sent on a link so far."""
        return [message for message in self.out.get(link, ()) if isinstance(message, kind)]

    def stream(self, link: int) -> list[object]:
        """The session's stream as it came down a link so far: see :func:`named`."""
        return named(self.out.get(link, ()))

    def waiting(self, subscription: str) -> int:
        """Number of notifications that wait for a subscription."""
        queues = (queue.queues.get(subscription) for _, queue in self.broker.state.queue.waiting())
        return sum(queue.waiting for queue in queues if queue is not None)

    def accepted(self, link: int) -> list[int]:
        return [message.number for message in self.received(link, PublishAccepted)]

    def written(self, kind: type[RecordKind]) -> list[RecordKind]:
        """Every record of a kind in the log, and every drop that another record has in it as a record of its own."""
        found = [each for record in map(decode_record, self.log) for each in (record, *drops_of(record))]
        return [record for record in found if isinstance(record, kind)]
