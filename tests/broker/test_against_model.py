"""The broker against a model of a few dicts, through crashes of either side (DESIGN 5, SPEC E-05, G, H-11, U-02).

Whatever happens, each of Alice's devices must find her stream, in order and without holes but for gaps that a bound
explains; every match must be accounted for; and the live state must be what the log gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from tests.broker.model import Model
from wanderbus.broker import protocol
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.protocol import Attach, Attachment, Leave, Notify, NotifyGap, Publish, PublishAccepted, Subscribe
from wanderbus.broker.queue import Queued
from wanderbus.event import Event, Position
from wanderbus.machine import Output
from wanderbus.records import Published, decode_record
from wanderbus.subscription import Frequency, QueuePolicy, WhenFull

KINDS = ("free", "bound", "tight", "fresh", "rare")
"""Of Alice's subscriptions: bound to her phone, with a bound of its own, with an age of its own, restricted."""

devices = st.sampled_from(("phone", "laptop"))


class TimedDesk(Desk):
    """It remembers by the broker's clock when each message was sent."""

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        for link, messages in self.out.items():
            times = self.sent_us.setdefault(link, [])
            times += [self.broker.state.wall_us] * (len(messages) - len(times))

    def start(self) -> None:
        self.sent_us: dict[int, list[int]] = getattr(self, "sent_us", {})
        super().start()


class Device:
    """One of Alice's agents: what it remembers in this life, and up to where any life of it has seen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = 1
        self.link: int | None = None
        self.read = self.seen = self.taken = self.ever_seen = 0


class BrokerAgainstModel(RuleBasedStateMachine):
    @initialize(
        cap=st.sampled_from([3, 1000]),
        window=st.sampled_from([2, 256]),
        when_full=st.sampled_from(["drop_oldest", "drop_newest"]),
        age_max_s=st.sampled_from([None, 30.0]),
        backlog_per_s=st.sampled_from([1.0, 1e6]),
    )
    def begin(self, cap: int, window: int, when_full: WhenFull, age_max_s: float | None, backlog_per_s: float) -> None:
        queue = QueuePolicy(notifications_max=cap, age_max_s=age_max_s, when_full=when_full)
        config = BrokerConfig(queue=queue, unacknowledged_max=window, backlog_per_s=backlog_per_s, sweep_s=20.0)
        self.own_full: WhenFull | None = "drop_newest" if cap == 3 else None
        self.desk = TimedDesk(config)
        self.submitted: list[Publish] = []
        self.accepted: set[int] = set()
        self.durable = 0
        self.devices = {name: Device(name) for name in ("phone", "laptop")}
        self.bob = 0
        self.bob_returns()
        self.attach(self.devices["phone"])
        self.attach(self.devices["laptop"])
        for kind in KINDS:
            self.subscribe_or_unsubscribe(kind)

    def teardown(self) -> None:
        """In the end everybody comes back and takes what there is: nothing may be missing."""
        if not hasattr(self, "desk"):
            return
        self.sync()
        for device in self.devices.values():
            if device.link is None:
                self.attach(device)
        for _ in range(2 * len(self.submitted) + 2):
            self.desk.later(1.0)
            for device in self.devices.values():
                self.listen(device)
                self.take(device, device.seen)
        model = self.model()
        for reason in model.dropped:
            event(f"dropped: {reason}")
        for device in self.devices.values():
            assert all(number <= device.seen for number in model.meant if model.is_for(number, device.name))
        self.hear_bob()
        assert self.accepted == {publish.number for publish in self.submitted}
        assert len(self.desk.broker.state.queue) == len(self.desk.broker.state.events) == 0
        self.everything_is_as_the_model_says()

    def model(self) -> Model:
        return Model(self.desk.config, map(decode_record, self.desk.log))

    # What happens ------------------------------------------------------------------------------------------------

    @rule(events=st.lists(st.sets(st.sampled_from(KINDS), min_size=1, max_size=3), min_size=1, max_size=6))
    def publish_some(self, events: list[set[str]]) -> None:
        for kinds in events:
            self.publish(kinds)

    def publish(self, kinds: set[str]) -> None:
        n = len(self.submitted) + 1
        self.submitted.append(Publish(n, Event(SUBJECT, {"N": n} | dict.fromkeys(sorted(kinds), 1))))
        self.desk.say(self.bob, self.submitted[-1])
        model, most = self.model(), self.desk.config.queue.notifications_max
        if kinds & {model.known[s].expression.split()[0] for s in model.live} - {"rare"}:
            assert sum(map(bool, model.waiting.values())) <= (most or 0)

    @rule(kind=st.sampled_from(KINDS))
    def subscribe_or_unsubscribe(self, kind: str) -> None:
        self.sync()
        if (phone := self.devices["phone"].link) is None:
            return
        model = self.model()
        for identity in model.live:
            if model.known[identity].expression.startswith(kind):
                self.desk.say(phone, protocol.Unsubscribe(1, identity))
                return
        policy = {"tight": QueuePolicy(2, when_full=self.own_full), "fresh": QueuePolicy(age_max_s=10.0)}
        restrictions = (Frequency(10.0),) if kind == "rare" else ()
        queue = policy.get(kind, QueuePolicy())
        self.desk.say(phone, Subscribe(1, SUBJECT, f"{kind} > 0", None, restrictions, kind == "bound", queue))

    @rule(name=devices)
    def come_back(self, name: str) -> None:
        self.attach(self.devices[name])

    @rule(name=devices, keep=st.booleans())
    def be_reborn_without_memory(self, name: str, keep: bool) -> None:
        """The agent crashed, and its application had committed nothing; it may not want what there was."""
        device = self.devices[name]
        device.life += 1
        device.seen = device.taken = 0
        self.attach(device, keep=keep)

    @rule(name=devices)
    def go_away(self, name: str) -> None:
        device = self.devices[name]
        if device.link is not None:
            self.desk.close(device.link)
            device.link = None

    @rule(name=devices)
    def leave(self, name: str) -> None:
        """It will be another device to the session when it comes again."""
        device = self.devices[name]
        if device.link is not None:
            self.listen(device)
            self.sync()
            self.desk.say(device.link, Leave(1))
            self.devices[name] = Device(name)
            self.devices[name].life = device.life + 1

    @rule(name=devices, share=st.floats(0, 1))
    def take_some(self, name: str, share: float) -> None:
        device = self.devices[name]
        self.listen(device)
        self.take(device, round(device.seen * share))

    @rule(seconds=st.sampled_from([0.5, 6.0, 15.0, 45.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.sync()
        self.desk.later(seconds)

    @rule(hours=st.sampled_from([-1, 1]))
    def set_the_wall_clock(self, hours: int) -> None:
        self.desk.offset_us += hours * 3_600_000_000

    @precondition(lambda self: not self.desk.held)
    @rule()
    def hold_the_disk(self) -> None:
        self.sync()
        self.desk.held = True

    @rule()
    def sync(self) -> None:
        self.desk.held = False
        self.desk.sync()
        self.durable = len(self.desk.log)

    @rule()
    def save(self) -> None:
        """Rows may be saved once the records that they reflect are durable."""
        self.sync()
        self.desk.save()

    @rule(share=st.floats(0, 1), with_rows=st.booleans())
    def crash(self, share: float, with_rows: bool) -> None:
        """Lose power: of what was not synced, some first part survives."""
        durable = self.durable if self.desk.held else len(self.desk.log)
        for device in self.devices.values():
            self.listen(device)
            device.link = None
        self.hear_bob()
        del self.desk.log[durable + round((len(self.desk.log) - durable) * share) :]
        self.desk.held = False
        self.desk.restart(with_rows=with_rows)
        self.bob_returns()

    # The agents ------------------------------------------------------------------------------------------------------

    def bob_returns(self) -> None:
        self.bob = self.desk.attach(BOB)
        self.desk.say(self.bob, *[publish for publish in self.submitted if publish.number not in self.accepted])

    def attach(self, device: Device, *, keep: bool = True) -> None:
        device.link = self.desk.open(ALICE, device.name)
        device.read = 0
        resume = Position(self.desk.epoch(), device.taken) if device.taken else None
        self.desk.say(device.link, Attach(device.life, "default", resume, keep))

    def take(self, device: Device, number: int) -> None:
        if device.link is not None and number > device.taken:
            device.taken = number
            self.desk.take(device.link, number)

    def listen(self, device: Device) -> None:
        """Read what came since: what is next for this device, or a gap."""
        if device.link is None or len(heard := self.desk.out.get(device.link, [])) == device.read:
            return
        model, attached = self.model(), device.read > 0
        said = list(zip(heard, self.desk.sent_us[device.link], strict=True))
        for message, sent_us in said[device.read :]:
            match message:
                case Attachment(epoch=epoch, taken=taken):
                    assert epoch == self.desk.epoch() > 0
                    device.seen = max(device.seen, taken)
                    attached = True
                case NotifyGap(first=first, last=last, lost=lost):
                    assert attached
                    self.nothing_between(device, model, first)
                    concerned = [s for n in range(first, last + 1) for s in model.is_for(n, device.name)]
                    for each in lost:
                        assert 0 < each.count <= concerned.count(each.subscription)
                    assert lost
                    device.seen = max(device.seen, last)
                case Notify(number=number) if number > device.seen:
                    assert attached
                    self.nothing_between(device, model, number)
                    self.notified(device, model, message, sent_us)
        device.read = len(heard)
        device.ever_seen = max(device.ever_seen, device.seen)

    def nothing_between(self, device: Device, model: Model, number: int) -> None:
        assert not any(model.is_for(n, device.name) for n in range(device.seen + 1, number))

    def notified(self, device: Device, model: Model, notify: Notify, sent_us: int) -> None:
        published = protocol.decode_event(bytes(notify.event))
        assert published["N"] == model.published[notify.number][0]
        told, lost = set(notify.subscriptions), {each.subscription for each in notify.lost}
        assert told
        assert told | lost == model.is_for(notify.number, device.name)
        assert not told & lost
        for policy in (self.desk.config.queue, *(model.known[s].queue for s in told)):
            assert not model.too_old(policy, notify.number, sent_us), "never deliver an older one"
        assert notify.redelivered or notify.number > device.ever_seen or device.taken or device.life == 1
        device.seen = notify.number

    def hear_bob(self) -> None:
        for accepted in self.desk.heard(self.bob, PublishAccepted):
            record = decode_record(self.desk.log[accepted.id.offset])
            assert isinstance(record, Published)
            assert record.number == accepted.number
            self.accepted.add(accepted.number)

    # What always holds -----------------------------------------------------------------------------------------------

    @invariant()
    def devices_hear_the_stream(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.hear_bob()
        for device in self.devices.values():
            self.listen(device)
            if device.link is not None and device.taken == device.seen and not self.desk.held:
                ahead = [n for n in self.model().meant if n > device.seen]
                waiting = [n for n in ahead if self.model().is_for(n, device.name)]
                assert not waiting or ("pace", device.link) in self.desk.timers, "the stream stands still"

    @invariant()
    def live_state_is_what_the_log_gives(self) -> None:
        if hasattr(self, "desk"):
            live = rows_of(self.desk.broker.state)
            assert rows_of(self.desk.recovered(from_log_alone=True)) == live

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if not hasattr(self, "desk"):
            return
        state, model = self.desk.broker.state, self.model()
        session = state.sessions.get(f"{ALICE}/default")
        if session is None:
            return
        queue = {}
        for entry in state.queue[session.key]:
            for number in range(entry.number, entry.last + 1):
                queue[number] = set(entry.subscriptions) if isinstance(entry, Queued) else set()
        assert queue == model.waiting
        generated = sum(map(len, model.meant.values()))
        assert (session.generated, session.delivered, session.restricted, session.queued) == (
            generated,
            model.delivered,
            model.restricted,
            generated - model.delivered - model.dropped.total(),
        )
        assert session.dropped == dict(model.dropped)
        assert session.waiting == sum(map(bool, queue.values()))
        sizes = {entry.number: len(entry.event.data) for entry in state.queue[session.key] if isinstance(entry, Queued)}
        assert session.queued_bytes == state.queued_bytes == sum(sizes.values())
        for identity in model.known:
            if row := state.known(identity):
                assert row.waiting == sum(identity in waiting for waiting in queue.values())
                assert row.waiting_bytes == sum(sizes[n] for n, waiting in queue.items() if identity in waiting)
        assert {device: state.devices[f"{ALICE}/{device}"].cursor for device in session.devices} == model.cursors


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(max_examples=80, stateful_step_count=40)
