"""Memory of one user's filters is bounded, by an estimate that is the same at every start."""

from __future__ import annotations

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus import filters
from wanderbus.filters.sizes import size_of
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Renew, RequestRefused, Unsubscribe

EACH = size_of(filters.parse("a0 == 0 and b0 == 0"))


def wide(number: int) -> str:
    return f"a{number} == 0 and b{number} == 0"


def refused(answer: object) -> RequestRefused:
    assert isinstance(answer, RequestRefused), answer
    return answer


def three_at_most() -> tuple[Desk, int]:
    desk = Desk(BrokerConfig(user_filter_bytes_max=3 * EACH, sweep_s=None))
    link = desk.attach()
    for number in range(3):
        desk.subscribed(link, wide(number))
    return desk, link


def test_user_filter_bytes_max_is_named_in_its_refusal_and_holds_for_each_user() -> None:
    desk, link = three_at_most()
    answer = refused(desk.subscribe(link, wide(3)))
    assert answer.limit == "user_filter_bytes_max"
    assert f"{4 * EACH} bytes; the limit is {3 * EACH}" in answer.reason
    desk.subscribed(desk.attach(BOB), wide(3))
    assert desk.broker._subscriptions.matcher.bytes.of_user(ALICE) == 3 * EACH


def test_a_filter_that_ends_makes_room_also_by_expiry() -> None:
    desk, link = three_at_most()
    ended = next(row.subscription.id for row in desk.broker.state.subscriptions.values())
    desk.ask(link, Unsubscribe(2, ended))
    desk.subscribed(link, wide(4), lifetime_s=5.0)
    assert refused(desk.ask(link, Renew(3, ended, None))).limit == "user_filter_bytes_max"
    desk.later(6.0)
    desk.subscribed(link, wide(5))


def test_filters_count_as_much_after_a_restart() -> None:
    desk, _ = three_at_most()
    desk.restart()
    assert refused(desk.subscribe(desk.attach(epoch=2), wide(3))).limit == "user_filter_bytes_max"
