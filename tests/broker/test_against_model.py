"""The broker against a model of a few lists, through crashes of either side (DESIGN 5, SPEC G-13, G-16, G-19, E-05).

The model is Alice's stream as one list. Whatever happens, each of her devices must find it there, in order and
without holes but for gaps within the cap; and the live state must be what the log gives.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk, rows_of
from wanderbus.broker import protocol
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.protocol import Attach, Attachment, Notify, NotifyGap, Publish, PublishAccepted
from wanderbus.event import Event, Position
from wanderbus.records import Published, decode_record
from wanderbus.subscription import QueuePolicy

KINDS = ("free", "bound", "other")
"""Alice subscribes to free events for all her devices, to bound ones for her phone, to others not at all."""


class Device:
    """One of Alice's agents: what it remembers in this life, and what any life of it has seen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.life = 1
        self.link: int | None = None
        self.read = 0
        self.attached = False
        self.seen = 0
        self.taken = 0
        self.ever_seen = 0


class BrokerAgainstModel(RuleBasedStateMachine):
    @initialize(cap=st.sampled_from([3, 1000]), window=st.sampled_from([2, 256]))
    def begin(self, cap: int, window: int) -> None:
        self.cap = cap
        self.desk = Desk(BrokerConfig(queue=QueuePolicy(notifications_max=cap), unacknowledged_max=window))
        self.stream: list[tuple[int, str]] = []
        self.submitted: list[tuple[int, str]] = []
        self.accepted: set[int] = set()
        self.subscribed: dict[str, str] = {}
        self.durable = 0
        self.devices = {name: Device(name) for name in ("phone", "laptop")}
        self.bob = 0
        self.bob_returns()
        self.attach(self.devices["phone"])

    def teardown(self) -> None:
        """In the end everybody comes back and takes what there is: nothing may be missing."""
        if not hasattr(self, "desk"):
            return
        self.sync()
        for device in self.devices.values():
            if device.link is None:
                self.attach(device)
            for _ in range(len(self.stream) + 1):
                self.listen(device)
                self.take(device, device.seen)
            assert all(number <= device.seen for number in self.numbers_for(device)), device.name
        self.hear_bob()
        assert self.accepted == {n for n, _ in self.submitted}
        assert len(self.desk.broker.state.queue) == 0

    # What happens ------------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(KINDS))
    def publish(self, kind: str) -> None:
        n = len(self.submitted) + 1
        self.submitted.append((n, kind))
        if kind in self.subscribed:
            self.stream.append((n, kind))
        self.desk.say(self.bob, self.publishing(n, kind))

    @rule(kind=st.sampled_from(("free", "bound")))
    def subscribe_or_unsubscribe(self, kind: str) -> None:
        self.sync()
        if (phone := self.devices["phone"].link) is None:
            return
        if identity := self.subscribed.pop(kind, None):
            self.desk.say(phone, protocol.Unsubscribe(1, identity))
        else:
            bound = kind == "bound"
            self.desk.say(phone, protocol.Subscribe(1, SUBJECT, f"Kind == {kind}", None, (), bound))
            self.subscribed[kind] = next(
                row.subscription.id
                for row in self.desk.broker.state.subscriptions.values()
                if row.subscription.expression == f"Kind == {kind}"
            )
        self.sync()

    @rule(name=st.sampled_from(("phone", "laptop")))
    def come_back(self, name: str) -> None:
        self.attach(self.devices[name])

    @rule(name=st.sampled_from(("phone", "laptop")))
    def be_reborn_without_memory(self, name: str) -> None:
        """The agent crashed, and its application had committed nothing."""
        device = self.devices[name]
        device.life += 1
        device.seen = device.taken = 0
        self.attach(device)

    @rule(name=st.sampled_from(("phone", "laptop")))
    def go_away(self, name: str) -> None:
        device = self.devices[name]
        if device.link is not None:
            self.desk.close(device.link)
            device.link = None

    @rule(name=st.sampled_from(("phone", "laptop")), share=st.floats(0, 1))
    def take_some(self, name: str, share: float) -> None:
        device = self.devices[name]
        self.listen(device)
        self.take(device, round(device.seen * share))

    @rule()
    def hold_the_disk(self) -> None:
        if not self.desk.held:
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

    def publishing(self, n: int, kind: str) -> Publish:
        return Publish(n, Event(SUBJECT, {"N": n, "Kind": kind}))

    def bob_returns(self) -> None:
        self.bob = self.desk.attach(BOB)
        unsettled = [each for each in self.submitted if each[0] not in self.accepted]
        self.desk.say(self.bob, *[self.publishing(n, kind) for n, kind in unsettled])

    def attach(self, device: Device) -> None:
        device.link = self.desk.open(ALICE, device.name)
        device.read, device.attached = 0, False
        resume = Position(self.desk.epoch(), device.taken) if device.taken else None
        self.desk.say(device.link, Attach(device.life, "default", resume, True))

    def take(self, device: Device, number: int) -> None:
        if device.link is not None and number > device.taken:
            device.taken = number
            self.desk.take(device.link, number)

    def numbers_for(self, device: Device) -> list[int]:
        kinds = {"free", "bound"} if device.name == "phone" else {"free"}
        return [number for number, (_, kind) in enumerate(self.stream, 1) if kind in kinds]

    def listen(self, device: Device) -> None:
        """Read what came since: the next of the stream that is for this device, or a gap that the cap explains."""
        heard = self.desk.out.get(device.link or 0, [])
        for message in heard[device.read :]:
            match message:
                case Attachment(epoch=epoch, taken=taken):
                    assert epoch == self.desk.epoch() > 0
                    device.attached = True
                    device.seen = max(device.seen, taken)
                case NotifyGap(last=last):
                    assert device.attached
                    assert last <= len(self.stream) - self.cap
                    device.seen = max(device.seen, last)
                case Notify(number=number) if number > device.seen:
                    self.notified(device, message)
        device.read = len(heard)
        device.ever_seen = max(device.ever_seen, device.seen)

    def notified(self, device: Device, notify: Notify) -> None:
        assert device.attached
        assert notify.number == min(number for number in self.numbers_for(device) if number > device.seen)
        event = protocol.decode_event(bytes(notify.event))
        assert (event["N"], event["Kind"]) == self.stream[notify.number - 1]
        if device.life > 1 and notify.number <= device.ever_seen:
            assert notify.redelivered
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
            waiting = [number for number in self.numbers_for(device) if number > device.seen]
            if device.link is not None and device.taken == device.seen and not self.desk.held:
                assert waiting == [], "nothing is under way, and yet the stream stands still"

    @invariant()
    def live_state_is_what_the_log_gives(self) -> None:
        if hasattr(self, "desk"):
            live = rows_of(self.desk.broker.state)
            assert rows_of(self.desk.recovered(from_log_alone=True)) == live

    @invariant()
    def counters_count(self) -> None:
        if not hasattr(self, "desk"):
            return
        state = self.desk.broker.state
        entries = [entry for entry in state.queue.values() if entry.id is not None]
        session = state.sessions.get(f"{ALICE}/default")
        assert (session.waiting if session else 0) == len(entries) <= self.cap
        for identity, row in state.subscriptions.items():
            assert row.waiting == sum(identity in entry.subscriptions for entry in entries)


TestBrokerAgainstModel = BrokerAgainstModel.TestCase
TestBrokerAgainstModel.settings = settings(max_examples=80, stateful_step_count=40)
