"""Who gets which notification, and how far all have got (DESIGN 5.2, 5.5)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.api.dispatch import Dispatcher, Item
from wanderbus.event import Event, EventId, Gap, Notification, Position


class Basket:
    """A reader that keeps what it is handed."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def put(self, item: Item) -> None:
        self.items.append(item)

    @property
    def numbers(self) -> list[int]:
        return [item.position.number for item in self.items]


def item(number: int, *subscriptions: str) -> Notification:
    return Notification(Event("S", {}), subscriptions, Position(1, number), EventId("wb", number))


def gap(number: int, count: int = 1) -> Gap:
    return Gap(count, "queue_max", Position(1, number))


def claimed(dispatcher: Dispatcher, *subscriptions: str) -> list[Basket]:
    baskets = [Basket() for _ in subscriptions]
    for subscription, basket in zip(subscriptions, baskets, strict=True):
        dispatcher.claim(subscription, basket)
    return baskets


def test_each_reader_gets_what_is_for_it() -> None:
    dispatcher = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    for number, subscriptions in enumerate((["a"], ["b"], ["a", "b"]), 1):
        dispatcher.arrived(item(number, *subscriptions))
    assert (one.numbers, other.numbers) == ([1, 3], [2, 3])


def test_the_number_rises_when_every_reader_has_taken() -> None:
    dispatcher = Dispatcher()
    claimed(dispatcher, "a", "b")
    assert [dispatcher.arrived(item(number, "a", "b")) for number in (1, 2, 3)] == [None] * 3
    assert dispatcher.took("a", 3) is None
    assert dispatcher.took("b", 1) == 1
    assert dispatcher.took("b", 1) is None
    assert dispatcher.took("b", 3) == 3
    assert dispatcher.taken == 3


def test_a_slow_reader_holds_the_number_back() -> None:
    dispatcher = Dispatcher()
    claimed(dispatcher, "slow", "fast")
    dispatcher.arrived(item(1, "slow"))
    for number in range(2, 6):
        dispatcher.arrived(item(number, "fast"))
        assert dispatcher.took("fast", number) is None
    assert dispatcher.took("slow", 1) == 5


def test_what_nobody_reads_is_held_and_claimed_later_in_order() -> None:
    dispatcher = Dispatcher()
    for number in (1, 2, 3):
        assert dispatcher.arrived(item(number, "a")) is None
    assert dispatcher.unclaimed == ["a"]
    (basket,) = claimed(dispatcher, "a")
    dispatcher.arrived(item(4, "a"))
    assert (basket.numbers, dispatcher.unclaimed) == ([1, 2, 3, 4], [])
    assert dispatcher.took("a", 4) == 4


def test_an_item_for_two_is_claimed_by_each_in_its_time() -> None:
    dispatcher = Dispatcher()
    dispatcher.arrived(item(1, "a", "b"))
    (one,) = claimed(dispatcher, "a")
    assert dispatcher.took("a", 1) is None
    assert dispatcher.unclaimed == ["b"]
    (other,) = claimed(dispatcher, "b")
    assert (one.numbers, other.numbers) == ([1], [1])
    assert dispatcher.took("b", 1) == 1


def test_a_kept_subscription_leaves_its_items_to_the_next_reader() -> None:
    dispatcher = Dispatcher()
    (first,) = claimed(dispatcher, "a")
    for number in (1, 2, 3):
        dispatcher.arrived(item(number, "a"))
    assert dispatcher.took("a", 1) == 1
    assert dispatcher.release("a", first.items[1:], ended=False) is None
    assert dispatcher.arrived(item(4, "a")) is None
    assert dispatcher.unclaimed == ["a"]
    (second,) = claimed(dispatcher, "a")
    assert second.numbers == [2, 3, 4]
    assert dispatcher.took("a", 4) == 4


def test_a_reader_that_leaves_does_not_disturb_the_other() -> None:
    dispatcher = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    dispatcher.arrived(item(1, "a", "b"))
    dispatcher.release("a", one.items, ended=False)
    assert dispatcher.took("b", 1) is None
    (again,) = claimed(dispatcher, "a")
    assert (other.numbers, again.numbers) == ([1], [1])
    assert dispatcher.took("a", 1) == 1


def test_what_is_left_joins_what_was_held_in_order() -> None:
    dispatcher = Dispatcher()
    (first,) = claimed(dispatcher, "a")
    for number, subscriptions in enumerate((["a"], ["a", "b"], ["a"], ["b"]), 1):
        dispatcher.arrived(item(number, *subscriptions))
    dispatcher.release("a", first.items, ended=False)
    one, other = claimed(dispatcher, "a", "b")
    assert (one.numbers, other.numbers) == ([1, 2, 3], [2, 4])


def test_an_ended_subscription_holds_nothing_back() -> None:
    dispatcher = Dispatcher()
    one, _ = claimed(dispatcher, "a", "b")
    for number, subscriptions in enumerate((["a"], ["a", "b"], ["a"]), 1):
        dispatcher.arrived(item(number, *subscriptions))
    assert dispatcher.release("a", one.items, ended=True) == 1
    assert dispatcher.took("b", 2) == 3
    assert dispatcher.arrived(item(4, "a")) == 4, "what was still on its way for it is done with"
    assert dispatcher.unclaimed == []


def test_ending_what_nobody_read_lets_it_go() -> None:
    dispatcher = Dispatcher()
    dispatcher.arrived(item(1, "a"))
    dispatcher.arrived(item(2, "a", "b"))
    assert dispatcher.release("a", [], ended=True) == 1
    assert dispatcher.unclaimed == ["b"]
    (basket,) = claimed(dispatcher, "b")
    assert basket.numbers == [2]
    assert dispatcher.took("b", 2) == 2


def test_a_gap_goes_to_every_reader_and_takes_its_place_in_the_count() -> None:
    dispatcher = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    dispatcher.arrived(item(1, "a"))
    assert dispatcher.arrived(gap(4, count=3)) is None
    assert (one.numbers, other.numbers) == ([1, 4], [4])
    assert dispatcher.took("a", 1) == 4
    assert dispatcher.arrived(gap(5)) == 5


def test_a_gap_that_nobody_saw_waits_for_the_first_reader() -> None:
    """SPEC U-02: on a new connection gaps arrive before the application has subscribed again."""
    dispatcher = Dispatcher()
    assert dispatcher.arrived(gap(3, count=3)) is None
    dispatcher.arrived(item(4, "a"))
    assert dispatcher.unclaimed == ["a"]
    basket = Basket()
    assert dispatcher.claim("a", basket) == 3
    assert basket.items == [gap(3, count=3), item(4, "a")]
    assert dispatcher.took("a", 4) == 4
    assert claimed(dispatcher, "b")[0].items == []


def test_a_gap_that_its_reader_did_not_reach_goes_to_the_next_one() -> None:
    dispatcher = Dispatcher()
    (first,) = claimed(dispatcher, "a")
    dispatcher.arrived(item(1, "a"))
    dispatcher.arrived(gap(2))
    dispatcher.release("a", first.items, ended=False)
    (second,) = claimed(dispatcher, "a")
    assert second.numbers == [1, 2]
    assert dispatcher.took("a", 1) == 2


@settings(max_examples=15)
@given(st.lists(st.sampled_from([("a",), ("b",), ("a", "b"), ()]), max_size=8), st.data())
def test_numbers_are_cumulative_and_nothing_is_lost_or_repeated(
    plan: Sequence[tuple[str, ...]], data: st.DataObject
) -> None:
    """Whoever reads what in whatever order: the number acknowledged never covers an item that somebody waits for."""
    dispatcher = Dispatcher()
    baskets: dict[str, Basket] = {}
    through = {"a": 0, "b": 0}
    waiting = list(enumerate(plan, 1))
    said = [0]
    while waiting or any(through[name] < len(plan) for name in through):
        step = data.draw(st.sampled_from(["arrive", "a", "b"]))
        if step == "arrive" and waiting:
            number, subscriptions = waiting.pop(0)
            word = dispatcher.arrived(item(number, *subscriptions) if subscriptions else gap(number))
        elif step != "arrive" and step not in baskets:
            baskets[step] = Basket()
            word = dispatcher.claim(step, baskets[step])
        elif step != "arrive":
            through[step] = len(plan) - len(waiting)
            word = dispatcher.took(step, through[step])
        else:
            continue
        if word is not None:
            assert word > said[-1]
            said.append(word)
            assert all(through[name] >= number for number, names in enumerate(plan[:word], 1) for name in names)
    assert dispatcher.taken == len(plan)
    for name, basket in baskets.items():
        mine = [each for each in basket.items if isinstance(each, Notification)]
        assert [each.position.number for each in mine] == [n for n, names in enumerate(plan, 1) if name in names]
    assert dispatcher.unclaimed == []
