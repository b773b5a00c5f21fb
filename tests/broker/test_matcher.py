"""Events that arrive together are matched together, with the same result as one by one (SPEC B-01, DESIGN 7.4)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from tests.broker.desk import ALICE, BOB, SUBJECT, Desk
from wanderbus import protocol, records
from wanderbus.broker import agent_messages
from wanderbus.broker.core import Broker
from wanderbus.broker.interest import matcher as broker_interests
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.messages import (
    DiskFull,
    KernelLoaded,
    KernelWanted,
    LinkClosed,
    LinkOpened,
    MessageArrived,
    SubscriptionUnreadable,
)
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.machine import ClockRead, Input, Output
from wanderbus.matching import SCANNED_MAX, Index, Kernel
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import AgentMessage, Attach, NotifyAck, Publish, Renew, Subscribe, Unsubscribe
from wanderbus.records import encode_record
from wanderbus.subscription import Frequency, Subscription

Asked = TypeVar("Asked", bound=Output)


@pytest.fixture
def matched(monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """The ``N`` of the matched events, for each call of the index."""
    looks: list[list[object]] = []
    match = Index.match

    def counted(index: Index, events: Sequence[Event]) -> list[list[str]]:
        looks.append([event.attributes.get("N") for event in events])
        return match(index, events)

    monkeypatch.setattr(Index, "match", counted)
    return looks


def event(n: int) -> Event:
    return Event(SUBJECT, {"N": n})


def publishes(*numbers: int) -> list[AgentMessage]:
    return [Publish(n, event(n)) for n in numbers]


def subscribe(request: int, expression: str = "", **options: Any) -> Subscribe:
    return Subscribe(request, SUBJECT, expression, None, (), False, **options)


def names(state: BrokerState) -> list[str]:
    """The ids of all subscriptions, those that have ended last."""
    return [identity for table in (state.subscriptions, state.tombstones) for identity, _ in table.items()]


def subscription(number: int, expression: str = "") -> Subscription:
    return Subscription(f"wb-{number}", ALICE, "default", SUBJECT, expression, None, (), None)


# Events matched together -----------------------------------------


def test_events_of_one_batch_are_matched_together(desk: Desk, matched: list[list[object]]) -> None:
    link = desk.attach()
    desk.subscribed(link, "N > 1")
    desk.send(link, *publishes(1, 2, 3))
    assert matched == [[1, 2, 3]]
    assert desk.stream(link) == [2, 3]


def test_one_that_comes_alone_is_matched_at_once(desk: Desk, matched: list[list[object]]) -> None:
    link = desk.attach()
    desk.subscribed(link)
    desk.send(link, *publishes(1))
    assert matched == [[1]]
    assert desk.stream(link) == [1]


def test_those_of_several_links_are_matched_together_and_what_only_takes_does_not_part_them(
    desk: Desk, matched: list[list[object]]
) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(alice)
    said = [
        (alice, Publish(1, event(1))),
        (bob, Publish(1, event(2))),
        (alice, NotifyAck(1, 1)),
        (bob, Publish(2, event(3))),
    ]
    desk.give(*[MessageArrived(link, protocol.encode(message)) for link, message in said])
    assert matched == [[1, 2, 3]]
    assert desk.stream(alice) == [1, 2, 3]


@pytest.mark.parametrize("asked", ["subscribe", "renew"])
def test_nobody_looks_beyond_what_may_add_a_subscription(desk: Desk, matched: list[list[object]], asked: str) -> None:
    link = desk.attach()
    first = desk.subscribed(link, "N < 3").id
    desk.send(link, Unsubscribe(8, first))
    between = msgspec.structs.replace(subscribe(9), reader=9) if asked == "subscribe" else Renew(9, first, None)
    desk.send(link, *publishes(1, 2), between, *publishes(3, 4))
    assert matched == [[1, 2], [3, 4]]
    assert desk.stream(link) == ([3, 4] if asked == "subscribe" else [])


def test_a_renewed_subscription_receives_later_events_of_the_batch(desk: Desk) -> None:
    link = desk.attach()
    other, first = desk.subscribed(link, "N > 3").id, desk.subscribed(link).id
    desk.send(link, Unsubscribe(8, first))
    desk.send(link, *publishes(1, 2), Renew(9, first, None), *publishes(3, 4))
    assert [notify.subscriptions for notify in desk.received(link, protocol.Notify)] == [(first,), (other, first)]


def test_a_window_is_parted_where_it_is_too_much(
    desk: Desk, matched: list[list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_messages, "PREMATCHED_MAX", 3)
    link = desk.attach()
    desk.subscribed(link)
    desk.send(link, *publishes(*range(1, 9)))
    assert matched == [[1, 2, 3], [4, 5, 6], [7, 8]]
    assert desk.stream(link) == list(range(1, 9))


def test_repeats_bad_events_and_those_of_nobody_are_not_matched(desk: Desk, matched: list[list[object]]) -> None:
    link, unattached = desk.attach(epoch=5), desk.open(BOB, "phone")
    desk.send(link, *publishes(1, 2))
    bad = Publish(3, Event(SUBJECT, {"N": 2**63}))
    said = [(link, each) for each in [*publishes(1, 2), bad, *publishes(4, 5)]]
    said += [(unattached, Publish(1, event(6))), (99, Publish(1, event(7)))]
    desk.give(*[MessageArrived(where, protocol.encode(message)) for where, message in said])
    assert matched == [[1, 2], [4, 5]]
    assert desk.accepted(link) == [1, 2, 1, 2, 4, 5]


def test_with_a_full_disk_nothing_is_matched(desk: Desk, matched: list[list[object]]) -> None:
    link = desk.attach()
    desk.give(DiskFull())
    desk.send(link, *publishes(1, 2))
    assert matched == []


def test_garbage_in_a_batch_closes_its_link_in_its_turn(desk: Desk) -> None:
    alice, bob = desk.attach(), desk.attach(BOB)
    desk.subscribed(bob)
    payloads = [(alice, protocol.encode(publishes(1)[0])), (alice, b"\xc1"), (alice, protocol.encode(publishes(2)[0]))]
    desk.give(*[MessageArrived(*each) for each in payloads], MessageArrived(bob, protocol.encode(publishes(3)[0])))
    assert desk.stream(bob) == [1, 3]
    assert desk.broker.status(ALICE) == "DISCONNECTED"
    assert desk.broker._subscriptions.matcher._prematched == {}, "what nobody publishes is not kept"


# Changes between matching ahead and use ------------------------------------------------


def interests(*expressions: str) -> Matcher:
    made = Matcher(None, FilterWork(BrokerConfig(), lambda: 0))
    for number, expression in enumerate(expressions, 1):
        add(made, number, expression)
    return made


def add(to: Matcher, number: int, expression: str = "") -> None:
    wanted = subscription(number, expression)
    to.add(wanted, entries_of(wanted))


def test_removed_subscriptions_are_not_found() -> None:
    some, events = interests("", "N > 1", ""), [event(1), event(2), event(3)]
    some.prematch(events)
    assert sorted(some.matching(events[0])) == ["wb-1", "wb-3"]
    some.remove("wb-3")
    assert sorted(some.matching(events[1])) == ["wb-1", "wb-2"]
    some.remove("wb-1")
    some.prematch([events[2], events[0]])
    add(some, 1)
    assert sorted(some.matching(events[2])) == ["wb-1", "wb-2"]


def test_added_subscriptions_are_found() -> None:
    some, events = interests("N > 1"), [event(1), event(2)]
    some.prematch(events)
    add(some, 2)
    assert [sorted(some.matching(each)) for each in events] == [["wb-2"], ["wb-1", "wb-2"]]


def test_a_prematch_applies_to_its_event_only() -> None:
    """An event that was matched ahead and never used may be freed, and the next event may get its address in memory."""
    some = interests("N == 1")
    for _ in range(200):
        some.prematch([event(1), event(1)])
        assert sorted(some.matching(event(2))) == []


def test_matched_subscriptions_and_listings_are_in_order_of_creation_also_after_a_renewal_and_a_restart(
    desk: Desk,
) -> None:
    link = desk.attach()
    created = [desk.subscribed(link, f"N >= {number - 200}").id for number in range(120)]
    desk.send(link, Unsubscribe(8, created[7]), Renew(9, created[7], None))
    desk.publish(link, 1)
    listed = desk.ask(link, protocol.Query(10))
    assert isinstance(listed, protocol.Done)
    assert [each.id for each in listed.subscriptions] == created
    desk.save()
    desk.restart(with_rows=True)
    link = desk.attach(epoch=2)
    desk.publish(link, 2)
    published = desk.written(records.Published)
    assert [each.delivery.notified[0].subscriptions for each in published] == [tuple(created)] * 2


@pytest.mark.parametrize("saved", [False, True])
def test_the_number_of_a_subscription_is_never_used_again(desk: Desk, saved: bool) -> None:
    link = desk.attach()
    desk.send(link, Unsubscribe(8, desk.subscribed(link, "N == 1").id))
    desk.later(10 * desk.config.tombstone_s)
    assert not names(desk.broker.state)
    if saved:
        desk.save()
    desk.restart(with_rows=saved)
    desk.subscribed(desk.attach(), "N == 2")
    assert [each.number for each in desk.written(records.Subscribed)] == [1, 2]


# A batch is as good as its messages one by one -----------------------------------------


EXPRESSIONS = ("", "N > 2", "N < 9", "N == 5 or N == 6", "not (N > 4)", "Stock == PETR4", 'Stock prefix "VA" and N > 1')
LINKS = ((1, ALICE, "phone"), (2, ALICE, "desk"), (3, BOB, "phone"))


def drawn(rng: random.Random, identities: Sequence[str], numbers: dict[int, int]) -> MessageArrived:
    """A random message of an agent, most often a publish."""
    link = rng.choice(LINKS)[0]
    request, some = rng.randint(1, 1_000), rng.choice([*identities, "wb-404"])
    message: AgentMessage
    match rng.choices(range(7), (60, 8, 5, 5, 6, 1, 1))[0]:
        case 0:
            numbers[link] += rng.choice((1, 1, 1, 1, 0, 2))
            attributes: dict[str, Any] = {"N": rng.randint(0, 10), "Stock": rng.choice(("PETR4", "VALE5", 3))}
            if rng.random() < 0.05:
                attributes["N"] = 2**63
            message = Publish(numbers[link], Event(SUBJECT, attributes), outbox=rng.choice((None, None, None, 7)))
        case 1:
            restrictions = rng.choice(((), (), (Frequency(3.0),)))
            lifetime_s = rng.choice((None, 2.0, 5.0))
            message = Subscribe(
                request, SUBJECT, rng.choice(EXPRESSIONS), lifetime_s, restrictions, False, reader=rng.randint(1, 4)
            )
        case 2:
            message = Unsubscribe(request, some)
        case 3:
            message = Renew(request, some, rng.choice((None, 1.0, 4.0)))
        case 4:
            message = NotifyAck(rng.randint(1, 4), rng.randint(0, 60))
        case 5:
            message = Attach(rng.randint(1, 3), "default", None, rng.random() < 0.5)
        case _:
            return MessageArrived(link, rng.choice((b"\xc1", b"")))
    return MessageArrived(link, protocol.encode(message))


def reopened(desk: Desk) -> list[Input]:
    """Open the links that are not, as the access server would once their agents come again."""
    return [
        given
        for link, user, device in LINKS
        if desk.broker._links.get(link) is None
        for given in (
            LinkClosed(link, "it was dropped"),
            LinkOpened(link, user, device),
            MessageArrived(link, protocol.encode(Attach(1, "default", None, True))),
        )
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_batch_gives_the_log_and_the_words_of_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    config = BrokerConfig(turn_units=10_000, unsynced_units_max=10_000)
    together, alone = Desk(config), Desk(config)
    together.goes_on = alone.goes_on = False  # the next slice of a backlog follows the input
    numbers = {link: 0 for link, _, _ in LINKS}
    for _ in range(12):
        identities = names(together.broker.state)
        batch = [*reopened(together), *(drawn(rng, identities, numbers) for _ in range(rng.randint(1, 25)))]
        for desk in (together, alone):
            desk.held = True
        together.give(*batch)
        for given in batch:
            alone.give(given)
        for desk in (together, alone):
            desk.sync()
            desk.later(1.0)
        assert together.log == alone.log, seed
        assert together.out == alone.out, seed
    assert len(together.written(records.Published)) > 20, seed


# Kernels -----------------------------------------


def lived(*kernels: Kernel) -> tuple[list[bytes], dict[int, Any]]:
    """A life of more subscriptions than are tried in turn, in which kernels come at some time."""
    rng = random.Random(11)
    desk = Desk()
    links = [desk.attach(), desk.attach(BOB)]
    for n in range(3 * SCANNED_MAX):
        desk.subscribed(rng.choice(links), f"N > {n % 7} and K != {n}")
        if n == 2 * SCANNED_MAX and kernels:
            desk.give(KernelLoaded(kernels[0]))
    for first in range(1, 60, 6):
        if first == 31:
            for kernel in kernels[1:]:
                desk.give(KernelLoaded(kernel))
        desk.send(links[0], *[Publish(n, Event(SUBJECT, {"N": n % 9, "K": n})) for n in range(first, first + 6)])
        desk.take(links[1], first)
        desk.send(links[0], Unsubscribe(first, rng.choice(names(desk.broker.state))))
    return desk.log, desk.out


def test_responses_do_not_depend_on_matches() -> None:
    pytest.importorskip("numba")
    assert lived("numba") == lived("numpy", "numba") == lived()


class Watched(Desk):
    """A desk that keeps the outputs of its broker."""

    def __init__(self, **options: Any) -> None:
        self.outputs: list[Output] = []
        super().__init__(**options)

    def perform(self, outputs: Sequence[Output]) -> None:
        self.outputs += outputs
        super().perform(outputs)

    def asked(self, kind: type[Asked]) -> list[Asked]:
        return [output for output in self.outputs if isinstance(output, kind)]


def test_the_broker_asks_once_for_a_kernel_and_does_not_wait_for_it() -> None:
    desk = Watched()
    link = desk.attach()
    for n in range(SCANNED_MAX):
        desk.subscribed(link, f"N > {n}")
    assert desk.asked(KernelWanted) == []
    for n in range(SCANNED_MAX, SCANNED_MAX + 9):
        desk.subscribed(link, f"N > {n}")
    assert desk.asked(KernelWanted) == [KernelWanted("numpy")]
    desk.publish(link, 5)
    assert desk.stream(link) == [5]


def test_the_compiled_kernel_is_asked_for_once_it_saves_what_loading_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setattr(broker_interests, "COMPILED_FROM_EVENTS", 20)
    desk = Watched()
    link = desk.attach()
    for n in range(SCANNED_MAX + 9):
        desk.subscribed(link, f"N > {n}")
    for number in range(1, 31):  # matched by trying: they are no reason
        desk.send(link, Publish(number, Event(SUBJECT, {"N": 5})))
    desk.give(KernelLoaded("numpy"))
    for number in range(31, 50):
        desk.send(link, Publish(number, Event(SUBJECT, {"N": 5})))
    assert desk.asked(KernelWanted) == [KernelWanted("numpy")]
    for number in range(50, 90):
        desk.send(link, Publish(number, Event(SUBJECT, {"N": 5})))
    assert desk.asked(KernelWanted) == [KernelWanted("numpy"), KernelWanted("numba")]


def test_a_broker_that_begins_with_many_asks_unless_it_was_given_one() -> None:
    desk = Desk()
    link = desk.attach()
    for n in range(SCANNED_MAX + 1):
        desk.subscribed(link, f"N > {n}")

    def asks(kernel: Any) -> bool:
        outputs = Broker(desk.recovered(), desk.config, kernel=kernel).step([ClockRead(desk.wall_us)], 0.0)
        return any(isinstance(output, KernelWanted) for output in outputs)

    assert asks(None)
    assert not asks("scan")
    assert not asks("numpy")


# Expressions that cannot be read any more -----------------------------------------


def unreadable(state: BrokerState, expression: str, language: str = "eci") -> bytes:
    """A record of a subscription that an earlier version accepted."""
    old = msgspec.structs.replace(
        next(iter(state.subscriptions.values())).subscription,
        id=str(state.identity(state.offset)),
        expression=expression,
        language=language,
        expires_us=state.wall_us + 10_000_000,
    )
    return encode_record(records.Subscribed(at_us=state.wall_us, subscription=old, number=state.next_subscription))


@pytest.mark.parametrize(("expression", "language"), [("N >>> 3", "eci"), ("N > 1", "lost")])
def test_an_expression_that_cannot_be_read_any_more_does_not_keep_the_broker_from_starting(
    expression: str, language: str
) -> None:
    before = Desk()
    before.subscribed(before.attach())
    payload = unreadable(before.broker.state, expression, language)
    desk = Watched(log=[*before.log, payload])
    identity = str(before.broker.state.identity(len(before.log)))
    said = desk.asked(SubscriptionUnreadable)
    assert [each.subscription for each in said] == [identity]
    assert said[0].reason
    assert identity in desk.broker.state.subscriptions
    link = desk.attach()
    desk.publish(link, 5)
    assert [notify.subscriptions for notify in desk.received(link, protocol.Notify)] == [
        tuple(each for each in names(desk.broker.state) if each != identity)
    ]
    desk.later(70.0)
    assert identity in desk.broker.state.tombstones
    log = list(desk.log)
    answer = desk.ask(link, Renew(5, identity, None))
    assert isinstance(answer, protocol.RequestRefused)
    assert desk.log == log
    desk.publish(link, 6)
    assert desk.stream(link) == [5, 6]


# Hierarchies of subjects ------------------------------------------


def family() -> Matcher:
    """A matcher with a subscription to each subject; ``Child`` is below ``Parent``, which is below ``Top``."""
    lineages = {"Child": ("Child", "Parent", "Top"), "Parent": ("Parent", "Top")}
    work = FilterWork(BrokerConfig(), lambda: 0)
    matcher = Matcher(None, work, lambda subject: lineages.get(subject, (subject,)))
    for subject in ("Child", "Parent", "Top", "Other", "*"):
        one = Subscription(subject, ALICE, "default", subject, "N > 1", None, (), None)
        matcher.add(one, entries_of(one))
    return matcher


def found_by(matcher: Matcher, subject: str, n: int = 2) -> list[str]:
    """The subscriptions that an event of a subject matches."""
    return sorted(matcher.matching(Event(subject, {"N": n})))


def test_an_event_matches_under_each_ancestor_of_its_subject() -> None:
    matcher = family()
    assert found_by(matcher, "Child") == ["*", "Child", "Parent", "Top"]
    assert found_by(matcher, "Parent") == ["*", "Parent", "Top"]
    assert found_by(matcher, "Top") == ["*", "Top"]
    assert found_by(matcher, "Unknown") == ["*"]
    assert found_by(matcher, "Child", 1) == []


@pytest.mark.parametrize("kernel", ["scan", "numpy"])
def test_a_batch_gives_each_event_its_own_ancestors(kernel: Kernel) -> None:
    matcher = family()
    matcher.use(kernel)
    events = [Event(subject, {"N": n}) for subject in ("Other", "Child", "Top", "Parent") for n in (1, 2)]
    alone = [sorted(matcher.matching(each)) for each in events]
    matcher.prematch(events)
    matcher.remove("Parent")
    assert [sorted(matcher.matching(each)) for each in events] == [
        [one for one in found if one != "Parent"] for found in alone
    ]


def test_a_filter_that_is_too_costly_for_an_event_of_a_child_is_undecided() -> None:
    work = FilterWork(BrokerConfig(filter_work_max=1), lambda: 0)
    matcher = Matcher(None, work, lambda subject: (subject, "Top") if subject == "Child" else (subject,))
    one = Subscription("top", ALICE, "default", "Top", "N > 1 and N < 5", None, (), None)
    matcher.add(one, entries_of(one))
    child = Event("Child", {"N": 7})
    assert matcher.matching(child) == ["top"]
    assert list(work.take_undecided(child)) == ["top"]
