"""T-05: whatever happens, a subscription since the past gets exactly the matching events from there on, in order."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.broker.desk import BOB, START_US, SUBJECT, Desk, rows_of
from tests.broker.engine_desk import EngineDesk
from wanderbus import protocol
from wanderbus.broker.history import catch_up
from wanderbus.event import Event, EventId, Position
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attach, Done, Notify, NotifyAck, NotifyGap, Read, Reader, Renew, Subscribe, Unsubscribe
from wanderbus.records import Published, Subscribed, Unsubscribed, decode_record
from wanderbus.subscription import Since

EXPRESSIONS: Final = ("", "N < 40", "N > 5")

Step = tuple[str, int]
"""An action and its argument."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6)),
        st.tuples(st.just("subscribe"), st.integers(0, 8)),
        st.tuples(st.just("take"), st.integers(0, 3)),
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("match"), st.integers(0, 4)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 5)),
        st.tuples(st.just("move"), st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 2)),
        st.tuples(st.just("renew"), st.integers(0, 2)),
        st.tuples(st.just("later"), st.integers(1, 3)),
    ),
    max_size=40,
)


class World:
    """A broker, a publisher, and one device that never loses what it received; perhaps an engine beside the broker."""

    def __init__(self, *, has_engine: bool) -> None:
        config = BrokerConfig(unacknowledged_max=3)
        self.desk = EngineDesk(config, answers=False) if has_engine else Desk(config)
        self.desk.reads_history = False
        self.desk.held = True
        self.n = self.epoch = self.request = 0
        self.seen: dict[str, list[int]] = {}
        """Events of each subscription, as its application received them."""
        self.numbers: dict[str, int] = {}
        self.unanswered: dict[int, Subscribe] = {}
        """Requests that an agent repeats on its next connection."""
        self.ended: list[str] = []
        self.handles: dict[int, str] = {}
        self.connect()

    def connect(self) -> None:
        self.epoch += 1
        self.publisher = self.desk.attach(BOB, "desk", epoch=self.epoch, reads=False)
        self.phone = self.desk.open("sip:alice@example.org", "phone")
        self.desk.send(self.phone, Attach(1, "default", None, keep=True))
        self.taken_in = 0
        self.desk.sync()
        self.open_readers()
        self.desk.send(self.phone, *self.unanswered.values())

    def open_readers(self) -> None:
        self.handles = dict(enumerate(self.seen, 1))
        epoch = self.desk.epoch()
        readers = tuple(
            Reader(handle, each, Position(epoch, self.numbers.get(each, 0))) for handle, each in self.handles.items()
        )
        self.desk.send(self.phone, Read(readers))
        self.take_in()

    def take_in(self) -> None:
        """Receive what arrived; repeats are recognised by their numbers, as an agent does it."""
        messages = self.desk.out.get(self.phone, [])
        while self.taken_in < len(messages):
            message = messages[self.taken_in]
            self.taken_in += 1
            match message:
                case Done(request=request, subscriptions=(subscription,)):
                    self.unanswered.pop(request, None)
                    self.begin(subscription.id)
                case Notify(event=event, number=number, readers=readers):
                    for handle in readers:
                        identity = self.handles[handle]
                        if number > self.numbers.get(identity, 0):
                            self.numbers[identity] = number
                            self.seen[identity].append(_number(protocol.decode_event(bytes(event))))
                case NotifyGap():
                    raise AssertionError("reading the past dropped something")

    def begin(self, identity: str) -> None:
        if identity in self.seen:
            return
        self.seen[identity] = []
        handle = max(self.handles, default=0) + 1
        self.handles[handle] = identity
        self.desk.send(self.phone, Read((Reader(handle, identity),)))

    # What may happen --------------------------------------------------------------------------------------------

    def do(self, step: Step) -> None:
        action, argument = step
        getattr(self, action)(argument)
        self.take_in()

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.n += 1
            self.desk.publish(self.publisher, self.n)

    def subscribe(self, which: int) -> None:
        self.request += 1
        state = self.desk.broker.state
        # Whatever the point, it is the place behind a record; a crash may cut the record itself off.
        durable = self.desk.broker._journal.durable
        since = Since(event=EventId(state.server, state.incarnation, max(0, durable - 1 - 3 * (which // 3))))
        if which % 3 == 0:
            since = Since()
        elif which % 3 == 1:
            since = Since(at_us=START_US + round(self.desk.now * 5e5))
        expression = EXPRESSIONS[self.request % 3]
        request = Subscribe(self.request, SUBJECT, expression, None, (), False, since=since)
        self.unanswered[self.request] = request
        self.desk.send(self.phone, request)

    def take(self, back: int) -> None:
        for handle, identity in list(self.handles.items()):
            number = self.numbers.get(identity, 0) - back
            if number > 0:
                self.desk.send(self.phone, NotifyAck(handle, number))
            self.take_in()

    def read(self, _: int) -> None:
        if self.desk.pieces:
            self.desk.read_history()

    def match(self, count: int) -> None:
        """Let the engine answer once, with a few events; it may have lost its memory."""
        if isinstance(self.desk, EngineDesk):
            if count == 0:
                self.desk.engine.forget()
            self.desk.engine.events_max = max(1, count)
            self.desk.match()

    def sync(self, _: int) -> None:
        self.desk.sync()

    def kill(self, how: int) -> None:
        """Lose records that are not durable, and perhaps the state file."""
        durable = self.desk.broker._journal.durable
        del self.desk.log[durable:]
        if how % 2 and self.desk.rows_offset <= durable:
            self.desk.restart(with_rows=True)
        else:
            self.desk.restart()
        self.desk.sync()
        if how > 2:
            self.desk.save()
        # A subscription that was not durable was not confirmed, so the application does not know it.
        assert all(each in self.desk.broker.state.subscriptions or each in self.ended for each in self.seen)
        self.connect()

    def move(self, _: int) -> None:
        """Lose the connection and come back."""
        self.desk.close(self.phone)
        self.connect()

    def end(self, which: int) -> None:
        if which < len(self.seen):
            identity = list(self.seen)[which]
            self.desk.send(self.phone, Unsubscribe(1_000, identity))
            self.desk.sync()
            if identity not in self.ended:
                self.ended.append(identity)

    def renew(self, which: int) -> None:
        if self.ended:
            identity = self.ended[which % len(self.ended)]
            self.desk.send(self.phone, Renew(1_001, identity, None))
            self.desk.sync()
            self.ended.remove(identity)

    def later(self, seconds: int) -> None:
        self.desk.later(seconds)

    def settle(self) -> None:
        """Let everything come to rest."""
        for _ in range(400):
            self.sync(0)
            self.read(0)
            self.match(256)
            self.take_in()
            self.take(0)
            self.desk.later(0.3)
            if self.desk.broker.engine.is_waiting:
                continue
            if not self.desk.pieces and not self.desk.broker.state.queue and all(map(self.is_live, self.seen)):
                return
        raise AssertionError("it did not come to rest")

    def is_live(self, identity: str) -> bool:
        row = self.desk.broker.state.subscriptions.get(identity)
        return row is None or not row.history

    def expected(self, identity: str) -> list[int]:
        """The matching events from ``since`` on, by the log alone."""
        log = [decode_record(payload) for payload in self.desk.log]
        made = next(r for r in log if isinstance(r, Subscribed) and r.subscription.id == identity)
        since, test = made.subscription.since, made.subscription.expression
        assert since is not None
        found = []
        for offset, record in enumerate(log):
            if isinstance(record, Published) and _matches(test, record.event["N"]):
                after = since.event is None or offset > since.event.number
                if after and (since.at_us is None or record.at_us >= since.at_us):
                    found.append(_number(record.event))
        return found


def _number(event: Event) -> int:
    number = event["N"]
    assert isinstance(number, int)
    return number


def _matches(expression: str, n: object) -> bool:
    assert isinstance(n, int)
    return {"": True, "N < 40": n < 40, "N > 5": n > 5}[expression]


@pytest.mark.parametrize("has_engine", [False, True], ids=["broker", "engine beside it"])
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_t05_exactly_the_events_since_the_point_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, has_engine: bool, steps: list[Step]
) -> None:
    monkeypatch.setattr(catch_up, "PIECE_RECORDS_MAX", 5)
    monkeypatch.setattr(catch_up, "PIECE_EVENTS_MAX", 3)
    monkeypatch.setattr(catch_up, "HELD_MAX", 4)
    world = World(has_engine=has_engine)
    for step in steps:
        world.do(step)
    world.settle()
    for identity, seen in world.seen.items():
        if identity not in world.ended and identity in world.desk.broker.state.subscriptions:
            assert set(seen) <= set(world.expected(identity))
            assert seen == sorted(set(seen))
            if not _was_ended(world.desk, identity):
                assert seen == world.expected(identity)
    assert rows_of(world.desk.broker.state) == rows_of(world.desk.recovered(from_log_alone=True))


def _was_ended(desk: Desk, identity: str) -> bool:
    """Return whether it ended at some time: then it may have missed events until it was renewed."""
    ended = (decode_record(payload) for payload in desk.log)
    return any(isinstance(each, Unsubscribed) and each.subscription == identity for each in ended)
