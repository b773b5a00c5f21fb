"""Two users whose devices have the same id: neither sees, loses, repeats or ends anything of the other.

Agents choose their ids, so a user can copy the id of another user's device on purpose. Every history is played twice,
with one id for both and with two, and must be the same except for the names.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus import protocol, records
from wanderbus.broker.messages import LinkDropped
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Attachment, Kick, Leave, Publish, PublishAccepted, RequestRefused, Subscribe
from wanderbus.subscription import QueuePolicy

CAROL = "sip:carol@example.org"
STEPS = ("attach", "close", "publish", "outbox", "repeat", "take", "subscribe", "bound", "forget", "leave", "later")


@dataclass
class Person:
    """A user with one device at a time, and its publishes."""

    user: str
    device: str
    link: int = 0
    number: int = 0
    subscribed: int = 0


class History:
    """A broker, two users, and the messages that each was sent on all links."""

    def __init__(self, devices: tuple[str, str]) -> None:
        self.desk = Desk(BrokerConfig(user_devices_max=2, user_subscriptions_max=3, publishes_remembered=4))
        self.people = [Person(user, device) for user, device in zip((ALICE, BOB), devices, strict=True)]
        self.carol = self.desk.attach(CAROL, "desk")
        self.links: dict[str, list[int]] = {ALICE: [], BOB: []}

    def play(self, who: int, what: str) -> None:
        person, desk = self.people[who], self.desk
        if what == "attach":
            person.link = desk.attach(person.user, person.device)
            self.links[person.user].append(person.link)
        elif what == "later":
            desk.later(3 * 86_400.0)
            desk.publish(self.carol, len(desk.log))
        elif what == "forget":
            # By the user's own other device, as one that is stolen would be forgotten.
            desk.send(
                desk.attach(person.user, "another", reads=False), Kick(7, person.user, person.device, forget=True)
            )
        elif person.link:
            self.send(person, what)
        for dropped in desk.dropped_links:
            desk.close(dropped.link)
            for each in self.people:
                each.link = 0 if each.link == dropped.link else each.link
        desk.dropped_links.clear()

    def send(self, person: Person, what: str) -> None:
        desk, link = self.desk, person.link
        match what:
            case "close":
                desk.close(link)
                person.link = 0
            case "publish" | "outbox":
                person.number += 1
                self.publish(person, outbox=what == "outbox")
            case "repeat" if person.number:
                self.publish(person, outbox=False)
            case "take":
                desk.take(link, 1_000)
            case "subscribe" | "bound":
                person.subscribed += 1
                reader, expression = 50 + person.subscribed, f"N > {person.subscribed}"
                bound = what == "bound"
                desk.send(link, Subscribe(1, SUBJECT, expression, None, (), bound, QueuePolicy(), reader=reader))
            case "leave":
                desk.send(link, Leave(9))
                person.link = 0

    def publish(self, person: Person, *, outbox: bool) -> None:
        event = Event(SUBJECT, {"N": person.number, "By": person.user})
        self.desk.send(person.link, Publish(person.number, event, outbox=7 if outbox else None))

    def seen(self, user: str) -> list[bytes]:
        """Return everything that was sent to a user, as bytes in which the names of devices are alike."""
        said = [protocol.encode(message) for link in self.links[user] for message in self.desk.out.get(link, ())]
        return [payload.replace(b"tablet", b"mobile") for payload in said]


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(STEPS)), max_size=40))
def test_a_device_id_that_another_user_has_too_makes_no_difference(steps: list[tuple[int, str]]) -> None:
    one, two = History(("mobile", "mobile")), History(("mobile", "tablet"))
    for who, what in [(0, "attach"), (1, "attach"), (0, "subscribe"), (1, "subscribe"), *steps]:
        one.play(who, what)
        two.play(who, what)
    assert one.seen(ALICE) == two.seen(ALICE)
    assert one.seen(BOB) == two.seen(BOB)
    assert len(one.desk.log) == len(two.desk.log)


def test_numbers_of_one_user_are_no_repeats_of_another_with_the_same_device_id(desk: Desk) -> None:
    """Exactly once by user, device, life and number; also for an outbox that both used, and after a restart."""
    for with_rows in (False, True):
        for outbox in (None, 7):
            for user in (ALICE, BOB):
                link = desk.attach(user, "mobile", epoch=5)
                desk.send(link, Publish(1, Event(SUBJECT, {"By": user}), outbox=outbox))
                assert len(desk.received(link, PublishAccepted)) == 1
        assert len(desk.written(records.Published)) == 4, "two users, with an outbox and without"
        desk.save()
        desk.restart(with_rows=with_rows)


def test_another_user_cannot_end_or_list_a_device_by_its_id(desk: Desk) -> None:
    alice, bob = desk.attach(ALICE, "mobile"), desk.attach(BOB, "mobile")
    for forget in (False, True):
        answer = desk.ask(bob, Kick(3, ALICE, "mobile", forget))
        assert isinstance(answer, RequestRefused)
    assert not desk.dropped_links
    desk.send(desk.attach(BOB, "other"), Kick(3, BOB, "mobile", True))
    assert [each.link for each in desk.dropped_links if isinstance(each, LinkDropped)] == [bob]
    desk.subscribed(alice)
    desk.publish(desk.attach(CAROL, "desk"), 1)
    assert desk.stream(alice) == [1]


@pytest.mark.parametrize("user", ["sip:alice/mobile@example.org", "sip:alice@example.org.evil"])
def test_no_name_of_a_user_is_the_beginning_of_anothers_device(desk: Desk, user: str) -> None:
    """Rows are kept by user and device with a slash between; domains hold none, so that no two pairs are one key."""
    for device in ("mobile", "mobile/outbox", "/", "example.org/mobile"):
        mine, theirs = desk.attach(ALICE, device), desk.attach(user, device)
        assert desk.received(mine, Attachment)
        assert desk.received(theirs, Attachment)
    assert not desk.dropped_links
    assert len({key for key, _ in desk.broker.state.devices.items()}) == 8
