"""A session that moves between servers, with crashes, is the same as one that never moved (SPEC L-01; DESIGN 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus import protocol, records
from wanderbus.broker.sessions.handover_messages import (
    DropExport,
    FenceSession,
    ImportSession,
    SessionExported,
    SessionMoveRefused,
    SessionOwned,
    UserUnowned,
)
from wanderbus.broker.state.exported_session import decode_export, encode_export, export_session
from wanderbus.event import Event, EventId
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    SESSION_MOVED,
    Notify,
    NotifyAck,
    Publish,
    PublishAccepted,
    PublishRefused,
    RequestRefused,
)
from wanderbus.subscription import Frequency, QueuePolicy

DEVICES = ("phone", "tablet")
CONFIG = BrokerConfig(
    queue=QueuePolicy(notifications_max=4, when_full="drop_oldest"), publishes_remembered=4, sweep_s=None
)
"""Without a sweep: the time of its next run depends on the start of a server."""


class Server(Desk):
    """A desk that keeps the outputs about handovers."""

    def __init__(self, name: str, config: BrokerConfig = CONFIG, **more: Any) -> None:
        self.moves: list[Output] = []
        super().__init__(msgspec.structs.replace(config, server=name), **more)

    def perform(self, outputs: Sequence[Output]) -> None:
        kinds = SessionExported | SessionOwned | SessionMoveRefused
        self.moves += [each for each in outputs if isinstance(each, kinds)]
        super().perform(outputs)

    def fence(self, owner_epoch: int, user: str = ALICE) -> Output:
        self.give(FenceSession(user, "default", owner_epoch))
        return self.moves[-1]

    def take_over(self, export: bytes) -> Output:
        self.give(ImportSession(export))
        return self.moves[-1]

    def owner_epoch(self) -> int:
        return self.broker.state.sessions[f"{ALICE}/default"].owner_epoch


def exported(output: Output) -> bytes:
    assert isinstance(output, SessionExported), output
    return output.export


def content(server: Desk, names: dict[str, str]) -> Any:
    """Everything of the session but ids, numbers of subscriptions, offsets of a log, and epochs."""
    whole = export_session(server.broker.state, ALICE, "default", 1)
    whole.session.epoch, whole.session.first, whole.session.earlier = 0, 0, ()
    for row in (*whole.subscriptions, *whole.ended):
        row.number = row.live_from = 0
    for device in whole.devices:
        device.redelivered = None
        device.status, device.away_since_us = "DISCONNECTED", None
    blocks = [
        (
            number,
            block.matches,
            [(each.place, each.match) for each in block.entries],
            sorted(block.gaps, key=lambda gap: (gap.number, names[gap.subscription])),
        )
        for number, block in whole.blocks
    ]
    events = [(each.at_us, each.data) for each in sorted(whole.events, key=lambda each: each.at_us)]
    rows = (whole.session, whole.subscriptions, whole.ended, whole.devices, blocks, events)
    text = msgspec.json.encode(rows).decode()
    for identity, name in names.items():
        text = text.replace(f'"{identity}"', f'"{name}"')
    return text


class World:
    """One session of Alice's at one of some servers; the first is the reference if there is only one."""

    def __init__(self, *names: str) -> None:
        self.servers = [Server(name) for name in names]
        self.at = 0
        self.links: dict[str, int] = {}
        self.epochs = dict.fromkeys((*DEVICES, "desk"), 0)
        self.names: dict[str, str] = {}
        """A name of each subscription that is the same in every world, by id."""
        self.created: list[str] = []
        self.seen: dict[str, dict[int, object]] = {device: {} for device in DEVICES}
        """The events that each device has received, by number."""
        self.bobs: dict[int, int] = {}
        for device in DEVICES:
            self.connect(device)

    @property
    def server(self) -> Server:
        return self.servers[self.at]

    def connect(self, device: str) -> None:
        self.links[device] = self.server.attach(ALICE, device, epoch=1)

    def hear(self) -> None:
        for device, link in self.links.items():
            for notify in self.server.received(link, Notify):
                self.seen[device][notify.number] = protocol.decode_event(bytes(notify.event))["N"]

    def reconnect(self) -> None:
        for device in DEVICES:
            self.connect(device)

    def later(self, seconds: float) -> None:
        for server in self.servers:
            server.later(seconds)

    # Steps --------------------------------------------------------------------------------------------------------

    def publish(self, n: int) -> None:
        if self.at not in self.bobs:
            self.epochs["desk"] += 1
            self.bobs[self.at] = self.server.attach(BOB, "desk", epoch=self.epochs["desk"])
        self.server.publish(self.bobs[self.at], n)
        self.hear()

    def subscribe(self, least: int, kind: str) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "plain": {},
            "seldom": {"restrictions": (Frequency(25.0),)},
            "short": {"lifetime_s": 30.0},
            "bound": {"this_device_only": True},
        }
        options = kinds[kind]
        answer = self.server.subscribe(self.links["phone"], f"N >= {least}", **options)
        assert isinstance(answer, protocol.Done)
        identity = answer.subscriptions[0].id
        if identity not in self.names:
            self.names[identity] = f"s{len(self.names)}"
            self.created.append(identity)

    def unsubscribe(self, place: int) -> None:
        if self.created:
            identity = self.created[place % len(self.created)]
            self.server.ask(self.links["phone"], protocol.Unsubscribe(1, identity))

    def take(self, device: str) -> None:
        """Take everything that was received; an unread end of a queue is dropped by its bound in every world."""
        self.hear()
        link = self.links[device]
        for handle in self.server.reading.get(link, {}).values():
            self.server.send(link, NotifyAck(handle, max(self.seen[device], default=0)))
        self.hear()

    def move(self, crashes: int) -> None:
        """Move to the next server; each bit of ``crashes`` restarts a server at another moment."""
        source, target = self.server, self.servers[(self.at + 1) % len(self.servers)]
        if source is target:
            return
        owner_epoch = source.owner_epoch() + 1
        export = exported(source.fence(owner_epoch))
        if crashes & 1:
            source.restart(with_rows=bool(crashes & 16))
            self.bobs.pop(self.at, None)
        assert exported(source.fence(owner_epoch)) == export
        sent = {link: len(messages) for link, messages in source.out.items()}
        owned = SessionOwned(ALICE, "default", owner_epoch)
        assert target.take_over(export) == owned
        self.at = (self.at + 1) % len(self.servers)
        if crashes & 2:
            target.save()
            target.restart(with_rows=bool(crashes & 32))
            self.bobs.pop(self.at, None)
        assert target.take_over(export) == owned
        if crashes & 4:
            source.give(DropExport(ALICE, "default"))
        if crashes & 8:
            self.bobs.pop(self.servers.index(source), None)
            source.save()
            source.restart(with_rows=bool(crashes & 16))
        source.give()
        assert {link: len(messages) for link, messages in source.out.items()} == sent, "a fenced source sends"
        refuse_all(source)
        self.reconnect()

    def restart(self, crashes: int) -> None:
        self.server.restart()
        self.bobs.pop(self.at, None)
        self.reconnect()


def refuse_all(source: Server) -> None:
    """A fenced source refuses every device, and delivers nothing of an event to anybody of the session."""
    for device in (*DEVICES, "other"):
        link = source.attach(ALICE, device, reads=False)
        (refused,) = source.received(link, RequestRefused)
        assert "has moved to another server" in refused.reason
        source.close(link)
    state = source.broker.state
    assert not [row for row in state.subscriptions.values() if row.subscription.owner == ALICE]
    assert f"{ALICE}/default" not in dict(state.queue.waiting())
    source.out.clear()


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 9)),
    st.tuples(st.just("publish"), st.integers(0, 9)),
    st.tuples(st.just("subscribe"), st.integers(0, 5), st.sampled_from(["plain", "seldom", "short", "bound"])),
    st.tuples(st.just("unsubscribe"), st.integers(0, 3)),
    st.tuples(st.just("take"), st.sampled_from(DEVICES)),
    st.tuples(st.just("later"), st.sampled_from([1.0, 20.0])),
    st.tuples(st.just("move"), st.integers(0, 63)),
    st.tuples(st.just("move"), st.integers(0, 63)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_l01_a_session_that_moves_is_delivered_as_one_that_stays(steps: list[tuple[str, Any]]) -> None:
    still, moving = World("still"), World("north", "south", "east")
    script: list[tuple[Any, ...]] = [("subscribe", 0, "plain"), *steps]
    for name, *arguments in script:
        for world in (still, moving):
            if name == "move" and world is still:
                world.restart(0)
            else:
                getattr(world, name)(*arguments)
        assert content(moving.server, moving.names) == content(still.server, still.names)
    for world in (still, moving):
        world.reconnect()
        world.hear()
    assert moving.seen == still.seen


def crowded() -> tuple[Server, int]:
    """A server with a subscription of Alice's, two waiting notifications and a publish of her phone."""
    source = Server("north")
    phone, bob = source.attach(ALICE, "phone", epoch=7), source.attach(BOB, "desk")
    source.subscribed(phone, "N > 0")
    for n in (1, 2):
        source.publish(bob, n)
    source.publish(phone, 3)
    return source, phone


def test_l01_a_repeated_publish_is_recognised_by_the_next_owner_too() -> None:
    source, phone = crowded()
    (first,) = source.received(phone, PublishAccepted)
    target = Server("south")
    target.take_over(exported(source.fence(2)))
    source.take_over(exported(target.fence(3)))
    for owner in (source, Server("west")):
        if owner is not source:
            owner.take_over(exported(source.fence(4)))
        again = owner.attach(ALICE, "phone", epoch=7)
        owner.send(again, Publish(1, Event(SUBJECT, {"N": 3})))
        assert owner.received(again, PublishAccepted) == [first]
        assert not owner.received(again, PublishRefused)
        assert first.id == EventId("north", first.id.incarnation, first.id.number)


def test_l01_the_links_of_a_fenced_session_are_refused_and_closed() -> None:
    source, phone = crowded()
    sent = len(source.out[phone])
    source.fence(2)
    (last,) = source.out[phone][sent:]
    reason = "the session 'default' has moved to another server; call again"
    assert last == RequestRefused(0, reason, limit=SESSION_MOVED)
    assert [each.link for each in source.dropped_links] == [phone]
    source.send(phone, Publish(2, Event(SUBJECT, {"N": 9})), NotifyAck(1, 3))
    assert len(source.out[phone]) == sent + 1
    refuse_all(source)


def test_l01_an_owner_epoch_that_is_not_higher_fences_nothing() -> None:
    source, _ = crowded()
    assert source.fence(1) == SessionMoveRefused(ALICE, "default", "its owner epoch is 1")
    assert not source.broker.state.sessions[f"{ALICE}/default"].is_fenced
    source.fence(5)
    assert source.fence(4) == SessionMoveRefused(ALICE, "default", "its owner epoch is 5")
    assert isinstance(source.fence(5), SessionExported)
    assert source.fence(6) == SessionMoveRefused(ALICE, "default", "its owner epoch is 5")
    assert source.fence(2, "sip:nobody@example.org").reason == "there is no such session"  # type: ignore[attr-defined]


def test_l01_a_session_is_imported_once_and_never_over_another_or_from_a_former_owner() -> None:
    source, _ = crowded()
    first = exported(source.fence(2))
    target = Server("south")
    target.subscribe(target.attach(ALICE, "phone"), "N >= 0")
    assert target.take_over(first) == SessionMoveRefused(
        ALICE, "default", "the session is here, with the owner epoch 1"
    )
    assert source.take_over(first) == SessionMoveRefused(
        ALICE, "default", "the session is here, with the owner epoch 2"
    )
    third = Server("west")
    assert third.take_over(first) == third.take_over(first) == SessionOwned(ALICE, "default", 2)
    assert len(third.written(records.SessionImported)) == 1
    third.fence(3)
    assert isinstance(third.take_over(first), SessionMoveRefused)
    assert isinstance(third.take_over(b"\xc1"), SessionMoveRefused)


def test_l01_a_session_comes_in_place_of_one_in_which_nothing_is() -> None:
    source, _ = crowded()
    first = exported(source.fence(2))
    target = Server("south")
    link = target.attach(ALICE, "watch")
    target.attach(ALICE, "phone")
    assert target.take_over(first) == SessionOwned(ALICE, "default", 2)
    assert RequestRefused in map(type, target.out[link]), "its devices call again, and find the session"
    assert "watch" not in target.broker.state.sessions[f"{ALICE}/default"].devices
    link = target.attach(ALICE, "watch")
    assert "watch" in target.broker.state.sessions[f"{ALICE}/default"].devices


def test_l01_an_export_is_given_once_the_fence_is_durable_and_lost_with_it() -> None:
    source, _ = crowded()
    source.held = True
    before = list(source.log)
    source.give(FenceSession(ALICE, "default", 2))
    assert source.moves == []
    crashed = Server("north", log=before)
    assert not crashed.broker.state.sessions[f"{ALICE}/default"].is_fenced
    source.sync()
    (move,) = source.moves
    assert exported(move) == source.broker.state.exports[f"{ALICE}/default"].export


def test_l01_an_export_is_dropped_when_the_next_owner_has_it() -> None:
    source, _ = crowded()
    source.fence(2)
    source.give(DropExport(ALICE, "default"))
    assert not len(source.broker.state.exports)
    assert isinstance(source.fence(2), SessionMoveRefused)
    source.restart()
    assert not len(source.broker.state.exports)
    refuse_all(source)


def test_l01_an_export_survives_encoding_and_leaves_the_state_as_it_is() -> None:
    source, _ = crowded()
    before = source.broker.state.changes()
    whole = export_session(source.broker.state, ALICE, "default", 2)
    assert decode_export(encode_export(whole)) == whole
    assert before
    assert source.broker.state.changes() == {}


@pytest.mark.parametrize("with_rows", [False, True])
def test_l01_events_that_come_back_are_stored_and_removed_again(with_rows: bool) -> None:
    source, _ = crowded()
    source.save()
    target = Server("south")
    target.take_over(exported(source.fence(2)))
    source.take_over(exported(target.fence(3)))
    link = source.attach(ALICE, "phone", epoch=7)
    source.take(link, 3)
    source.save()
    source.restart(with_rows=with_rows)
    state = source.broker.state
    assert (len(state.events), len(state.queue), state.queued_bytes) == (0, 0, 0)


def test_l01_another_life_of_a_device_may_have_seen_what_the_former_owner_sent() -> None:
    source, _ = crowded()
    target = Server("south")
    target.take_over(exported(source.fence(2)))
    link = target.attach(ALICE, "phone", epoch=8)
    assert [(notify.number, notify.redelivered) for notify in target.received(link, Notify)] == [
        (1, True),
        (2, True),
        (3, True),
    ]


def test_l06_only_the_session_that_no_server_has_begins_anew() -> None:
    source = Server("wb1")
    for name in ("default", "work"):
        link = source.attach(device=name, session=name)
        source.subscribed(link)
        source.give(FenceSession(ALICE, name, 2), DropExport(ALICE, name))
    sessions = source.broker.state.sessions
    source.give(UserUnowned(ALICE, "work"))
    assert (f"{ALICE}/work" in sessions, sessions[f"{ALICE}/default"].is_fenced) == (False, True)
    source.give(UserUnowned(ALICE))
    assert f"{ALICE}/default" not in sessions
