"""The broker against a model of a few dicts, through crashes of either side (DESIGN 5, SPEC E-05, G, H-11, T-06, U-02).

Each of Alice's devices must find every subscription that it reads, in order and without holes except gaps that a bound
explains, whatever it does not read. Every match must be accounted for. The live state must equal the state that the log
gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from tests.broker.engine_desk import EngineDesk
from tests.broker.model import Model
from wanderbus import protocol
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.state.rows import PastSessions
from wanderbus.event import Event, Position
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    Attach,
    Attachment,
    Leave,
    Notify,
    NotifyAck,
    NotifyGap,
    Publish,
    PublishAccepted,
    Read,
    Reader,
    Subscribe,
)
from wanderbus.records import Published, decode_record
from wanderbus.subscription import Frequency, QueuePolicy, WhenFull

KINDS = ("free", "bound", "tight", "fresh", "rare")
"""Kinds of Alice's subscriptions: plain, bound to her phone, with a bound of its own, with an age of its own,
restricted.
"""

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


class TimedEngineDesk(TimedDesk, EngineDesk):
    """Its broker leaves the matching to an engine, which answers when the test asks it to."""

    def __init__(self, config: BrokerConfig) -> None:
        super().__init__(config, answers=False)


class Place:
    """Position of a device in a subscription: seen and taken in this life, seen in any life, seen in earlier lives.

    What other devices have seen before this one was a member counts as seen in earlier lives.
    """

    def __init__(self) -> None:
        self.seen = self.taken = self.ever_seen = self.seen_before = 0


class Device:
    """One of Alice's agents: what it remembers in this life, and its highest seen number of all lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = 1
        self.link: int | None = None
        self.read = 0
        self.ignores: set[str] = set()
        """Kinds of subscriptions that have no reader there."""
        self.handles: dict[int, str] = {}
        """Subscriptions that are read on the present link, by handle."""
        self.places: dict[str, Place] = {}


class BrokerAgainstModel(RuleBasedStateMachine):
    @initialize(
        cap=st.sampled_from([3, 1000]),
        window=st.sampled_from([2, 256]),
        when_full=st.sampled_from(["drop_oldest", "drop_newest"]),
        age_max_s=st.sampled_from([None, 30.0]),
        backlog_per_s=st.sampled_from([1.0, 1e6]),
        has_engine=st.booleans(),
    )
    def begin(
        self,
        cap: int,
        window: int,
        when_full: WhenFull,
        age_max_s: float | None,
        backlog_per_s: float,
        has_engine: bool,
    ) -> None:
        queue = QueuePolicy(notifications_max=cap, age_max_s=age_max_s, when_full=when_full)
        config = BrokerConfig(queue=queue, unacknowledged_max=window, backlog_per_s=backlog_per_s, sweep_s=20.0)
        self.own_full: WhenFull | None = "drop_newest" if cap == 3 else None
        self.desk = TimedEngineDesk(config) if has_engine else TimedDesk(config)
        self.modelled: tuple[bytes, ...] | None = None
        self.submitted: list[Publish] = []
        self.accepted: set[int] = set()
        self.durable = 0
        self.devices = {name: Device(name) for name in ("phone", "laptop")}
        self.seen: dict[str, int] = {}
        """Highest number that any device has seen, by subscription."""
        self.bob = self.handle = 0
        self.bob_returns()
        self.attach(self.devices["phone"])
        self.attach(self.devices["laptop"])
        for kind in KINDS:
            self.subscribe_or_unsubscribe(kind)

    def teardown(self) -> None:
        """Reconnect all devices and take everything that waits: nothing may be missing."""
        if not hasattr(self, "desk"):
            return
        self.sync()
        if isinstance(self.desk, EngineDesk):
            self.match_all()
            self.crash(1.0, with_rows=False)  # the watermark outlives it
            self.match_all()
        for device in self.devices.values():
            if device.link is None:
                self.attach(device)
        for device in self.devices.values():
            device.ignores.clear()
        for _ in range(4 * len(self.submitted) + 2):  # each may wait for three subscriptions, one item goes a second
            if not len(self.desk.broker.state.queue):
                break
            self.desk.later(1.0)
            for device in self.devices.values():
                self.read_all(device)
                self.listen(device)
                self.take(device, 1.0)
        model = self.model()
        for reason in model.dropped:
            event(f"dropped: {reason}")
        self.hear_bob()
        assert self.accepted == {publish.number for publish in self.submitted}
        assert len(self.desk.broker.state.queue) == len(self.desk.broker.state.events) == 0
        self.everything_is_as_the_model_says()

    def match_all(self) -> None:
        """Let the engine match everything, if there is one."""
        while isinstance(self.desk, EngineDesk) and self.desk.match():
            pass

    def model(self) -> Model:
        """Model of the log; the cached one if no record was added since."""
        log = tuple(self.desk.log)
        if self.modelled != log:
            self.modelled, self.last_model = log, Model(self.desk.config, map(decode_record, log))
        return self.last_model

    # Steps ----------------------------------------------------------------------------------------------------------

    @rule(events=st.lists(st.sets(st.sampled_from(KINDS), min_size=1, max_size=3), min_size=1, max_size=6))
    def publish_some(self, events: list[set[str]]) -> None:
        for kinds in events:
            self.publish(kinds)

    def publish(self, kinds: set[str]) -> None:
        n = len(self.submitted) + 1
        self.submitted.append(Publish(n, Event(SUBJECT, {"N": n} | dict.fromkeys(sorted(kinds), 1))))
        self.desk.send(self.bob, self.submitted[-1])
        model, most = self.model(), self.desk.config.queue.notifications_max
        if kinds & {model.known[s].expression.split()[0] for s in model.live} - {"rare"}:
            assert len(model.entries()) <= (most or 0)

    @precondition(lambda self: isinstance(self.desk, EngineDesk))
    @rule(count=st.sampled_from([1, 2, 256]), is_killed=st.booleans())
    def match_some(self, count: int, is_killed: bool) -> None:
        """Let the engine answer, once or until nothing is left; it may have been killed before."""
        assert isinstance(self.desk, EngineDesk)
        self.desk.engine.events_max = count
        if is_killed:
            self.desk.engine.forget()
        if count == 256:
            self.match_all()
        else:
            self.desk.match()

    @precondition(lambda self: isinstance(self.desk, EngineDesk))
    @rule(kind=st.sampled_from(KINDS))
    def subscribe_anew(self, kind: str) -> None:
        """Publish before, between and behind two changes of a subscription."""
        for _ in range(2):
            self.publish({kind})
            self.subscribe_or_unsubscribe(kind)
        self.publish({kind})

    @rule(kind=st.sampled_from(KINDS))
    def subscribe_or_unsubscribe(self, kind: str) -> None:
        self.sync()
        if (phone := self.devices["phone"].link) is None:
            return
        model = self.model()
        for identity in model.live:
            if model.known[identity].expression.startswith(kind):
                self.desk.send(phone, protocol.Unsubscribe(1, identity))
                return
        self.desk.send(phone, self.request(kind))

    def request(self, kind: str, *, keep: bool = True) -> Subscribe:
        policy = {"tight": QueuePolicy(2, when_full=self.own_full), "fresh": QueuePolicy(age_max_s=10.0)}
        restrictions = (Frequency(10.0),) if kind == "rare" else ()
        queue = policy.get(kind, QueuePolicy())
        return Subscribe(1, SUBJECT, f"{kind} > 0", None, restrictions, kind == "bound", queue, is_kept=keep)

    @rule(name=devices, kind=st.sampled_from([kind for kind in KINDS if kind != "bound"]), keep=st.booleans())
    def hold(self, name: str, kind: str, keep: bool) -> None:
        """A program subscribes for a block of its own, or for good; another one may have done so before."""
        link, model = self.devices[name].link, self.model()
        if link is None:
            return
        self.desk.send(link, self.request(kind, keep=keep))
        (live,) = [each for each in self.model().live if self.kind(each) == kind]
        before = model.holders.get(live, ()) if live in model.live else (name,)
        held = () if keep or not before else tuple(dict.fromkeys((*before, name)))
        assert self.model().holders.get(live, ()) == held
        event(f"held by {len(held)}")

    @rule(name=devices, kind=st.sampled_from(KINDS))
    def take_over_what_another_has_left(self, name: str, kind: str) -> None:
        """A device leaves, and the other one renews what has ended with it."""
        (other,) = self.devices.keys() - {name}
        self.hold_anew(kind, name)
        self.leave(name)
        model, link = self.model(), self.devices[other].link
        for identity in model.known.keys() - model.live.keys():
            if link is not None and self.present(identity) == identity:
                self.renew(other, identity)

    @rule(name=devices, share=st.floats(0, 1, exclude_max=True))
    def renew_one_that_has_ended(self, name: str, share: float) -> None:
        """It lives again, or its successor is renewed; the device holds it if it was not kept."""
        model = self.model()
        ended = [each for each in model.known if each not in model.live]
        if self.devices[name].link is not None and ended:
            self.renew(name, ended[int(share * len(ended))])

    def renew(self, name: str, identity: str) -> None:
        model, link = self.model(), self.devices[name].link
        assert link is not None
        self.desk.send(link, protocol.Renew(1, identity, None))
        for revived in self.model().live.keys() - model.live.keys():
            held = self.model().holders.get(revived, ())
            assert held in ((), (name,))
            event(f"revived, held by {len(held)}")

    @rule(kind=st.sampled_from(KINDS), name=devices)
    def hold_anew(self, kind: str, name: str) -> None:
        """End a subscription, if there is one, and let a device hold its successor."""
        if any(self.kind(each) == kind for each in self.model().live):
            self.subscribe_or_unsubscribe(kind)
        self.hold(name, "free" if kind == "bound" else kind, keep=False)

    @rule(name=devices)
    def come_back(self, name: str) -> None:
        self.attach(self.devices[name])

    @rule(name=devices, keep=st.booleans())
    def be_reborn_without_memory(self, name: str, keep: bool) -> None:
        """The agent crashes without a committed position, and may choose not to resume the stream."""
        device = self.devices[name]
        device.life += 1
        for place in device.places.values():
            place.seen = place.taken = 0
            place.seen_before = max(place.seen_before, place.ever_seen)
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
            self.desk.send(device.link, Leave(1))
            self.devices[name] = Device(name)
            self.devices[name].life = device.life + 1

    @rule(name=devices, share=st.floats(0, 1), with_rows=st.booleans())
    def leave_while_the_power_fails(self, name: str, share: float, with_rows: bool) -> None:
        """Only a part of what follows from its leaving is durable."""
        device = self.devices[name]
        if device.link is not None:
            self.listen(device)
            self.hold_the_disk()
            self.desk.send(device.link, Leave(1))
            self.crash(share, with_rows)
            if name not in self.model().members:
                self.devices[name] = Device(name)
                self.devices[name].life = device.life + 1

    @rule(name=devices, share=st.floats(0, 1))
    def take_some(self, name: str, share: float) -> None:
        device = self.devices[name]
        self.listen(device)
        self.take(device, share)

    @rule(name=devices)
    def take_everything(self, name: str) -> None:
        """Take until nothing more arrives: a full window is empty afterwards."""
        device, read = self.devices[name], -1
        while read != device.read:
            read = device.read
            self.listen(device)
            self.take(device, 1.0)

    @rule(name=devices, kind=st.sampled_from(KINDS))
    def read_no_more(self, name: str, kind: str) -> None:
        """Stop reading a kind of subscriptions, or start again if it is not read."""
        device = self.devices[name]
        self.listen(device)
        device.ignores ^= {kind}
        for handle, subscription in list(device.handles.items()):
            if device.link is not None and self.kind(subscription) in device.ignores:
                del device.handles[handle]
                self.desk.send(device.link, protocol.StopReading(handle))
                place = self.place(device, subscription)
                place.seen = place.taken  # the broker redelivers what the device has not taken
        self.read_all(device)

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
        """Lose power: only some first part of the unsynced bytes survives."""
        durable = self.durable if self.desk.held else len(self.desk.log)
        for device in self.devices.values():
            self.listen(device)
            device.link = None
            device.handles.clear()
        self.hear_bob()
        del self.desk.log[durable + round((len(self.desk.log) - durable) * share) :]
        self.desk.held = False
        self.desk.restart(with_rows=with_rows)
        self.bob_returns()

    # The agents ------------------------------------------------------------------------------------------------------

    def bob_returns(self) -> None:
        self.bob = self.desk.attach(BOB)
        self.desk.send(self.bob, *[publish for publish in self.submitted if publish.number not in self.accepted])

    def attach(self, device: Device, *, keep: bool = True) -> None:
        device.link = self.desk.open(ALICE, device.name)
        device.read = 0
        device.handles.clear()
        if device.name not in self.model().members:
            for subscription, number in self.seen.items():
                place = self.place(device, subscription)
                place.seen_before = max(place.seen_before, number)
        self.desk.send(device.link, Attach(device.life, "default", None, keep))
        self.read_all(device)

    def read_all(self, device: Device) -> None:
        """Read every subscription that is not read yet, unless the device ignores its kind."""
        session = self.desk.broker.state.sessions.get(f"{ALICE}/default")
        if device.link is None or session is None:
            return
        for subscription in (*session.ended, *session.subscriptions):
            if self.present(subscription) != subscription:
                continue  # notifications that waited for it wait for its successor, which is read
            there = {self.present(each) for each in device.handles.values()}
            bound_to = self.model().known[subscription].device
            if (
                subscription in there
                or self.kind(subscription) in device.ignores
                or bound_to not in (None, device.name)
            ):
                continue
            self.handle += 1
            device.handles[self.handle] = subscription
            place = self.place(device, subscription)
            taken = Position(self.desk.epoch(), place.taken) if place.taken else None
            self.desk.send(device.link, Read((Reader(self.handle, subscription, taken),)))

    def present(self, subscription: str) -> str:
        """Subscription that inherited the queue of ``subscription``, or ``subscription`` itself."""
        successors = self.model().successors
        while subscription in successors:
            subscription = successors[subscription]
        return subscription

    def kind(self, subscription: str) -> str:
        return self.model().known[subscription].expression.split()[0]

    def place(self, device: Device, subscription: str) -> Place:
        """Position of a device in a subscription; an successor continues from the position of the ended one."""
        for each in list(device.places):
            if (present := self.present(each)) != each:
                device.places[present] = device.places.pop(each)
        return device.places.setdefault(self.present(subscription), Place())

    def take(self, device: Device, share: float) -> None:
        for handle, subscription in device.handles.items():
            place = self.place(device, subscription)
            number = place.taken + round((place.seen - place.taken) * share)
            if device.link is not None and number > place.taken:
                place.taken = number
                self.desk.send(device.link, NotifyAck(handle, number))

    def listen(self, device: Device) -> None:
        """Read the new messages: each is the next one for each reader, or a gap."""
        if device.link is None or len(heard := self.desk.out.get(device.link, [])) == device.read:
            return
        model, attached = self.model(), device.read > 0
        said = list(zip(heard, self.desk.sent_us[device.link], strict=True))
        for message, sent_us in said[device.read :]:
            match message:
                case Attachment(epoch=epoch):
                    assert epoch == max(self.desk.epoch(), self.desk.broker.state.epoch) > 0
                    attached = True
                case NotifyGap(first=first, last=last, lost=lost, reader=reader) if reader in device.handles:
                    assert attached
                    place = self.place(device, device.handles[reader])
                    meant = self.numbers(model, device.handles[reader])
                    if last > place.seen:
                        between = {n for n in meant if place.seen < n < first}
                        assert not between & self.ahead(device, model, device.handles[reader])
                    assert 0 < sum(loss.count for loss in lost) <= sum(first <= n <= last for n in meant)
                    self.see(device, device.handles[reader], max(place.seen, last))
                case Notify():
                    assert attached
                    self.notified(device, model, message, sent_us)
        device.read = len(heard)

    def numbers(self, model: Model, subscription: str) -> list[int]:
        """The numbers that were meant for a subscription and for those that it inherits from."""
        present = self.present(subscription)
        its_own = {each for each in model.known if self.present(each) == present}
        return [number for number, meant in model.meant.items() if meant & its_own]

    def ahead(self, device: Device, model: Model, subscription: str) -> set[int]:
        """Return the numbers that wait for a subscription and that this device took in none of its lives."""
        present = self.present(subscription)
        return {n for n in model.waiting[present] if n > model.cursors.get((present, device.name), 0)}

    def notified(self, device: Device, model: Model, notify: Notify, sent_us: int) -> None:
        published = protocol.decode_event(bytes(notify.event))
        assert published["N"] == model.published[notify.number][0]
        matched = {self.present(each) for each in notify.subscriptions}
        assert matched <= {self.present(each) for each in model.is_for(notify.number, device.name)}
        for reader in notify.readers:
            if reader not in device.handles:
                continue
            subscription = self.present(device.handles[reader])
            place = self.place(device, subscription)
            if notify.number <= place.seen:
                continue
            assert subscription in matched
            between = {n for n in self.numbers(model, subscription) if place.seen < n < notify.number}
            # The numbers between were taken in an earlier life, or by a device that has left since.
            assert not between & self.ahead(device, model, subscription)
            for policy in (self.desk.config.queue, model.known[subscription].queue):
                assert not model.too_old(policy, notify.number, sent_us), "never deliver an older one"
            assert notify.redelivered or notify.number > place.seen_before or place.taken
            self.see(device, subscription, notify.number)

    def see(self, device: Device, subscription: str, number: int) -> None:
        """Note that a device has seen a subscription up to a number."""
        place = self.place(device, subscription)
        place.seen, place.ever_seen = number, max(place.ever_seen, number)
        self.seen[subscription] = max(self.seen.get(subscription, 0), number)

    def hear_bob(self) -> None:
        for accepted in self.desk.received(self.bob, PublishAccepted):
            record = decode_record(self.desk.log[accepted.id.number])
            assert isinstance(record, Published)
            assert record.acceptance.number == accepted.number
            self.accepted.add(accepted.number)

    # Invariants -----------------------------------------------------------------------------------------------------

    @invariant()
    def devices_hear_the_stream(self) -> None:
        if not hasattr(self, "desk"):
            return
        self.hear_bob()
        for device in self.devices.values():
            self.read_all(device)
            self.listen(device)
            if device.link is None or self.desk.held or ("pace", device.link) in self.desk.timers:
                continue
            for subscription in device.handles.values():
                place = self.place(device, subscription)
                unseen = [n for n in self.ahead(device, self.model(), subscription) if n > place.seen]
                assert not unseen or place.taken < place.seen, "the reader stands still"

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
        assert (session is not None) == model.exists
        assert not model.is_due, "a session that is over ends with its last device"
        assert not model.left_behind(), "a subscription ends with the devices that hold it"
        assert {s: row.holders for s, row in state.subscriptions.items() if row.holders} == model.holders
        former = state.former.get(ALICE)
        past = (former and former.sessions) or PastSessions()
        counted = {"generated": past.generated, "delivered": past.delivered, "restricted": past.restricted}
        assert +Counter(past.dropped, **counted) == model.past
        if session is None:
            return
        queue = state.queue.get(session.key)
        queues = {} if queue is None else queue.queues
        waiting = {s: [item.number for item in its_own if isinstance(item, Queued)] for s, its_own in queues.items()}
        assert {s: numbers for s, numbers in waiting.items() if numbers} == {
            s: numbers for s, numbers in model.waiting.items() if numbers
        }
        assert (session.generated, session.delivered, session.restricted, session.queued) == (
            model.generated,
            model.delivered,
            model.restricted,
            model.generated - model.delivered - model.dropped.total(),
        )
        assert session.dropped == {reason: count for reason, count in model.dropped.items() if count}
        sizes = {entry.number: len(entry.event.data) for entry in queue or ()}
        assert sizes.keys() == model.entries()
        assert session.waiting == len(sizes)
        assert session.queued_bytes == state.queued_bytes == sum(sizes.values())
        for identity, numbers in waiting.items():
            assert queues[identity].waiting == len(numbers)
            assert queues[identity].queued_bytes == sum(sizes[n] for n in numbers)
        assert session.devices == model.members


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(max_examples=150, stateful_step_count=40)
