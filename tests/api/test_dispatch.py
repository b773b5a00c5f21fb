"""Who gets which notification, and how far all have got (DESIGN 5.2, 5.5)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus.api.dispatch import FORMER_MAX, Dispatcher, Item
from wanderbus.event import Event, EventId, Gap, Loss, Notification, Position


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


def claimed(dispatcher: Dispatcher[Basket], *subscriptions: str) -> list[Basket]:
    baskets = [Basket() for _ in subscriptions]
    for subscription, basket in zip(subscriptions, baskets, strict=True):
        dispatcher.claim(subscription, basket)
    return baskets


def test_each_reader_gets_what_is_for_it() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    for number, subscriptions in enumerate((["a"], ["b"], ["a", "b"]), 1):
        dispatcher.arrived(item(number, *subscriptions))
    assert (one.numbers, other.numbers) == ([1, 3], [2, 3])


def test_the_number_rises_when_every_reader_has_taken() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "a", "b")
    assert [dispatcher.arrived(item(number, "a", "b")) for number in (1, 2, 3)] == [None] * 3
    assert dispatcher.took("a", 3) is None
    assert dispatcher.took("b", 1) == 1
    assert dispatcher.took("b", 1) is None
    assert dispatcher.took("b", 3) == 3
    assert dispatcher.taken == 3


def test_a_slow_reader_holds_the_number_back() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "slow", "fast")
    dispatcher.arrived(item(1, "slow"))
    for number in range(2, 6):
        dispatcher.arrived(item(number, "fast"))
        assert dispatcher.took("fast", number) is None
    assert dispatcher.took("slow", 1) == 5


def test_what_nobody_reads_is_held_and_claimed_later_in_order() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    for number in (1, 2, 3):
        assert dispatcher.arrived(item(number, "a")) is None
    assert dispatcher.unclaimed == ["a"]
    (basket,) = claimed(dispatcher, "a")
    dispatcher.arrived(item(4, "a"))
    assert (basket.numbers, dispatcher.unclaimed) == ([1, 2, 3, 4], [])
    assert dispatcher.took("a", 4) == 4


def test_an_item_for_two_is_claimed_by_each_in_its_time() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    dispatcher.arrived(item(1, "a", "b"))
    (one,) = claimed(dispatcher, "a")
    assert dispatcher.took("a", 1) is None
    assert dispatcher.unclaimed == ["b"]
    (other,) = claimed(dispatcher, "b")
    assert (one.numbers, other.numbers) == ([1], [1])
    assert dispatcher.took("b", 1) == 1


def test_a_kept_subscription_leaves_its_items_to_the_next_reader() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "a")
    for number in (1, 2, 3):
        dispatcher.arrived(item(number, "a"))
    assert dispatcher.took("a", 1) == 1
    assert dispatcher.release("a", ended=False) is None
    assert dispatcher.arrived(item(4, "a")) is None
    assert dispatcher.unclaimed == ["a"]
    (second,) = claimed(dispatcher, "a")
    assert second.numbers == [2, 3, 4]
    assert dispatcher.took("a", 4) == 4


def test_a_reader_that_leaves_does_not_disturb_the_other() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    _, other = claimed(dispatcher, "a", "b")
    dispatcher.arrived(item(1, "a", "b"))
    dispatcher.release("a", ended=False)
    assert dispatcher.took("b", 1) is None
    (again,) = claimed(dispatcher, "a")
    assert (other.numbers, again.numbers) == ([1], [1])
    assert dispatcher.took("a", 1) == 1


def test_what_is_left_joins_what_was_held_in_order() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "a")
    for number, subscriptions in enumerate((["a"], ["a", "b"], ["a"], ["b"]), 1):
        dispatcher.arrived(item(number, *subscriptions))
    dispatcher.release("a", ended=False)
    one, other = claimed(dispatcher, "a", "b")
    assert (one.numbers, other.numbers) == ([1, 2, 3], [2, 4])


def test_an_ended_subscription_holds_nothing_back() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "a", "b")
    for number, subscriptions in enumerate((["a"], ["a", "b"], ["a"]), 1):
        dispatcher.arrived(item(number, *subscriptions))
    assert dispatcher.release("a", ended=True) == 1
    assert dispatcher.took("b", 2) == 3
    assert dispatcher.arrived(item(4, "a")) == 4, "what was still on its way for it is done with"
    assert dispatcher.unclaimed == []


def test_ending_what_nobody_read_lets_it_go() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    dispatcher.arrived(item(1, "a"))
    dispatcher.arrived(item(2, "a", "b"))
    assert dispatcher.release("a", ended=True) == 1
    assert dispatcher.unclaimed == ["b"]
    (basket,) = claimed(dispatcher, "b")
    assert basket.numbers == [2]
    assert dispatcher.took("b", 2) == 2


def test_a_gap_goes_to_every_reader_and_takes_its_place_in_the_count() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    dispatcher.arrived(item(1, "a"))
    assert dispatcher.arrived(gap(4, count=3)) is None
    assert (one.numbers, other.numbers) == ([1, 4], [4])
    assert dispatcher.took("a", 1) == 1
    assert dispatcher.took("a", 4) is None
    assert dispatcher.took("b", 4) == 4
    assert dispatcher.arrived(gap(5)) is None, "a gap is taken when the application has seen it"


def test_a_gap_that_nobody_saw_waits_for_the_first_reader() -> None:
    """SPEC U-02: on a new connection gaps arrive before the application has subscribed again."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
    assert dispatcher.arrived(gap(3, count=3)) is None
    dispatcher.arrived(item(4, "a"))
    assert dispatcher.unclaimed == ["a"]
    basket = Basket()
    dispatcher.claim("a", basket)
    assert basket.items == [gap(3, count=3), item(4, "a")]
    assert dispatcher.took("a", 4) == 4
    assert claimed(dispatcher, "b")[0].items == []


def test_a_gap_that_its_reader_did_not_reach_goes_to_the_next_one() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "a")
    dispatcher.arrived(item(1, "a"))
    dispatcher.arrived(gap(2))
    dispatcher.release("a", ended=False)
    (second,) = claimed(dispatcher, "a")
    assert second.numbers == [1, 2]
    assert dispatcher.took("a", 1) == 1
    assert dispatcher.took("a", 2) == 2


def lossy(number: int, *subscriptions: str, lost: Sequence[Loss]) -> Notification:
    return Notification(Event("S", {}), subscriptions, Position(1, number), EventId("wb", number), False, tuple(lost))


def test_u02_a_gap_tells_each_reader_of_its_own_losses_alone() -> None:
    """SPEC U-02: counts and reasons are those of the reader's subscription; nobody else is held up by it."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
    one, other, third = claimed(dispatcher, "a", "b", "c")
    lost = (Loss("a", "queue.age_max_s", 2), Loss("b", "purged", 3), Loss("a", "purged", 1))
    assert dispatcher.arrived(Gap(6, "queue.age_max_s, purged", Position(1, 6), lost)) is None
    assert one.items == [Gap(3, "queue.age_max_s, purged", Position(1, 6), (lost[0], lost[2]))]
    assert other.items == [Gap(3, "purged", Position(1, 6), (lost[1],))]
    assert third.items == []
    assert dispatcher.took("b", 6) is None
    assert dispatcher.took("a", 6) == 6


def test_u02_a_notification_that_some_lost_is_a_gap_to_them_in_its_place() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    dispatcher.arrived(item(1, "a", "b"))
    both = lossy(2, "a", lost=[Loss("b", "subscription.queue.bytes_max", 1)])
    dispatcher.arrived(both)
    dispatcher.arrived(item(3, "a", "b"))
    assert one.items[1] == both
    assert other.items[1] == Gap(1, "subscription.queue.bytes_max", Position(1, 2), both.lost)
    assert (one.numbers, other.numbers) == ([1, 2, 3], [1, 2, 3])
    assert dispatcher.took("a", 3) is None
    assert dispatcher.took("b", 1) == 1
    assert dispatcher.took("b", 3) == 3


def test_u02_a_loss_of_a_subscription_that_nobody_reads_yet_waits_for_its_reader() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    (one,) = claimed(dispatcher, "a")
    dispatcher.arrived(lossy(1, "a", lost=[Loss("b", "purged", 1)]))
    assert dispatcher.took("a", 1) is None
    assert dispatcher.unclaimed == ["b"]
    (other,) = claimed(dispatcher, "b")
    assert (one.items[0].lost, other.items) == (
        (Loss("b", "purged", 1),),
        [Gap(1, "purged", Position(1, 1), (Loss("b", "purged", 1),))],
    )
    assert dispatcher.took("b", 1) == 1


def test_u02_a_loss_without_a_name_is_told_to_all_that_are_not_named_and_holds_up_nobody() -> None:
    """A gap tells apart so many subscriptions; of the rest it is not known whose they are."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
    one, other = claimed(dispatcher, "a", "b")
    lost = (Loss("a", "purged", 1), Loss("", "purged", 3))
    dispatcher.arrived(Gap(4, "purged", Position(1, 4), lost))
    assert one.items == [Gap(1, "purged", Position(1, 4), lost[:1])]
    assert other.items == [Gap(3, "purged", Position(1, 4), lost[1:])]
    assert dispatcher.took("a", 4) is None
    assert dispatcher.took("b", 4) == 4


def test_u02_a_gap_without_a_reason_concerns_nobody() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    (one,) = claimed(dispatcher, "a")
    assert dispatcher.arrived(Gap(3, "", Position(1, 3))) == 3
    assert one.items == []


def test_another_stream_is_counted_anew() -> None:
    """A broker that lost everything begins with number 1 again."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
    (basket,) = claimed(dispatcher, "a")
    dispatcher.arrived(item(500, "a"))
    dispatcher.took("a", 500)
    dispatcher.arrived(item(501, "a"))
    for number in (1, 2):
        dispatcher.arrived(msgspec.structs.replace(item(number, "a"), position=Position(2, number)))
    assert basket.numbers == [500, 501, 1, 2]
    assert dispatcher.took("a", 1) == 1
    assert dispatcher.took("a", 2) == 2


def test_u02_leaving_with_a_gap_unread_does_not_hide_the_notification_from_another() -> None:
    """A gap for one reader and a notification for another have the same number."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
    claimed(dispatcher, "b")
    dispatcher.arrived(lossy(1, "a", lost=[Loss("b", "purged", 1)]))
    dispatcher.release("b", ended=False)
    one, other = claimed(dispatcher, "a", "b")
    assert isinstance(one.items[0], Notification)
    assert isinstance(other.items[0], Gap)


def test_x21_a_successor_has_what_was_not_taken_and_what_comes_for_either() -> None:
    """SPEC G-11, X21: nothing of the old id is lost or repeated, and it is all taken under the new one."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
    (basket,) = claimed(dispatcher, "a")
    for number in (1, 2):
        dispatcher.arrived(item(number, "a"))
    assert dispatcher.took("a", 1) == 1
    dispatcher.succeed("a", "b")
    assert dispatcher.reader("a") is None
    dispatcher.arrived(item(3, "a"))
    dispatcher.arrived(Gap(2, "purged", Position(1, 5), (Loss("a", "purged", 2),)))
    dispatcher.arrived(item(6, "b"))
    assert basket.numbers == [1, 2, 3, 5, 6]
    assert [dispatcher.took("b", number) for number in (2, 3, 5, 6)] == [2, 3, 5, 6]
    assert dispatcher.unclaimed == []


def test_x21_a_successor_may_have_one_itself() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    (basket,) = claimed(dispatcher, "a")
    dispatcher.succeed("a", "b")
    dispatcher.succeed("b", "c")
    for number, subscription in enumerate("abc", 1):
        dispatcher.arrived(item(number, subscription))
    assert basket.numbers == [1, 2, 3]
    assert dispatcher.took("c", 3) == 3
    assert dispatcher.release("c", ended=True) is None
    assert dispatcher.arrived(item(4, "a")) == 4, "what comes for a former id of an ended one is done with"


def test_x21_what_nobody_read_waits_for_the_successors_reader() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    dispatcher.arrived(item(1, "a"))
    dispatcher.succeed("a", "b")
    dispatcher.arrived(item(2, "a"))
    assert dispatcher.unclaimed == ["b"]
    (basket,) = claimed(dispatcher, "b")
    assert basket.numbers == [1, 2]
    assert dispatcher.took("b", 2) == 2


def test_former_ids_are_bounded() -> None:
    dispatcher: Dispatcher[Basket] = Dispatcher()
    (basket,) = claimed(dispatcher, "0")
    for number in range(FORMER_MAX + 10):
        dispatcher.succeed(str(number), str(number + 1))
    assert len(dispatcher._successors) == FORMER_MAX
    dispatcher.arrived(item(1, str(FORMER_MAX)))
    assert basket.numbers == [1]


@settings(max_examples=15)
@given(st.lists(st.sampled_from([("a",), ("b",), ("a", "b"), ()]), max_size=8), st.data())
def test_numbers_are_cumulative_and_nothing_is_lost_or_repeated(
    plan: Sequence[tuple[str, ...]], data: st.DataObject
) -> None:
    """Whoever reads what in whatever order: the number acknowledged never covers an item that somebody waits for."""
    dispatcher: Dispatcher[Basket] = Dispatcher()
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
            dispatcher.claim(step, baskets[step])
            word = None
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
