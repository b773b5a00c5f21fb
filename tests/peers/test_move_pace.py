"""The window of moves follows the times that moves take (SPEC L-06)."""

from __future__ import annotations

from wanderbus.peers.handover.move_pace import MovePace


def begin_all(pace: MovePace, now: float, name: str = "") -> list[str]:
    """Begin as many moves as there is room for, and return them."""
    begun: list[str] = []
    while pace.has_room(now):
        begun.append(f"{name}{now}-{len(begun)}")
        pace.begin(begun[-1], now)
    return begun


def round_of(pace: MovePace, now: float, took_s: float) -> int:
    """Begin as many moves as there is room for, let all end, and return their number."""
    begun = begin_all(pace, now)
    for each in begun:
        pace.end(each, now + took_s)
    return len(begun)


def test_a_window_grows_while_moves_end_in_time() -> None:
    pace = MovePace(least=4, most=10, late_s=0.1, lost_s=1.0)
    found = [round_of(pace, number, took_s) for number, took_s in enumerate([0.2, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2])]
    assert found == [4, 5, 6, 7, 9, 10, 10]


def test_a_window_shrinks_once_for_the_moves_that_are_late_together_and_not_below_its_least_size() -> None:
    pace = MovePace(least=4, most=12, late_s=0.1, lost_s=9.0)
    found = [round_of(pace, number, 0.1 if number < 6 else 0.5) for number in range(9)]
    assert found == [4, 5, 6, 7, 9, 11, 12, 6, 4]


def test_a_move_that_is_lost_or_has_failed_makes_room() -> None:
    pace = MovePace(least=2, most=10, late_s=0.1, lost_s=1.0)
    one, _ = begin_all(pace, 0.0)
    assert not pace.has_room(0.5)
    assert not pace.is_idle(0.5)
    pace.forget(one)
    assert len(begin_all(pace, 0.5, "later")) == 1
    assert len(begin_all(pace, 1.0, "last")) == 1, "the other one of the first two is lost"
    assert pace.is_idle(2.0)
    pace.end(one, 2.0)
    assert len(begin_all(pace, 2.0)) == 2, "it says nothing any more"
