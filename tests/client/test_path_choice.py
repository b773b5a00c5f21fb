"""The choice of a path: order of attempts, timeouts, and memory of the result (SPEC I-08)."""

from __future__ import annotations

import pytest

from wanderbus.client.machine.data_path import (
    ADDRESSES_MAX,
    PATIENCE_S_MAX,
    REMEMBERED_S,
    TCP_PATIENCE_S,
    UDP_PATIENCE_S,
    PathChoice,
    allowed_paths,
)
from wanderbus.client.machine.messages import DATA_PATH_KINDS, DataPathKind
from wanderbus.machine import Address

BROKER: Address = ("10.0.0.1", 5071)
STREAMS: Address = ("10.0.0.1", 5072)
RELAY: Address = ("10.0.0.2", 30_000)


def choice(*paths: DataPathKind, host: str = "a") -> PathChoice:
    return PathChoice(paths or DATA_PATH_KINDS, host)


def working(choice: PathChoice, path: DataPathKind, now: float = 0.0) -> PathChoice:
    """Let every path before ``way`` fail, and that one work."""
    while choice.path != path:
        assert choice.failed()
    choice.agreed(BROKER, 0.1, now)
    choice.succeeded(now)
    return choice


def test_ways_are_tried_in_their_order_until_none_is_left() -> None:
    tried = choice()
    seen = [tried.path]
    for remote in (BROKER, RELAY, STREAMS):
        assert tried.agreed(remote, 0.1, 0.0) is not None
        assert tried.failed()
        seen.append(tried.path)
    assert tuple(seen) == DATA_PATH_KINDS
    assert not tried.failed()
    assert tried.path == "tcp-relay"


@pytest.mark.parametrize(
    ("path", "round_trip_s", "patience_s"),
    [
        ("udp", 0.1, UDP_PATIENCE_S),
        ("udp", 1.5, 4.5),
        ("udp", 30.0, PATIENCE_S_MAX),
        ("tcp", 0.1, TCP_PATIENCE_S),
        ("tcp", 1.0, 6.0),
        ("tcp-relay", 30.0, PATIENCE_S_MAX),
    ],
)
def test_the_patience_follows_the_round_trip_within_bounds(
    path: DataPathKind, round_trip_s: float, patience_s: float
) -> None:
    assert choice(path).agreed(BROKER, round_trip_s, 7.0) == pytest.approx(7.0 + patience_s)


def test_a_relay_that_is_no_other_place_has_failed_already() -> None:
    tried = choice()
    tried.agreed(BROKER, 0.1, 0.0)
    tried.failed()
    assert tried.agreed(BROKER, 0.1, 2.0) is None
    tried.failed("no relay was found")
    assert tried.agreed(BROKER, 0.1, 2.0) is not None, "TCP at the same address is another way"
    assert tried.reason == "data channel over TCP: no relay was found over UDP by relay"


def test_after_a_move_the_best_way_is_tried_again() -> None:
    moved = working(choice(), "tcp")
    moved.moved("b", 1.0)
    assert (moved.path, moved.reason) == ("udp", "")


@pytest.mark.parametrize(("after_s", "path"), [(REMEMBERED_S - 1, "tcp"), (REMEMBERED_S, "udp")])
def test_a_working_way_is_remembered_for_its_address_for_a_while(after_s: float, path: DataPathKind) -> None:
    back = working(choice(), "tcp")
    back.moved("b", 1.0)
    back.moved("a", after_s)
    assert back.path == path
    failed = working(choice(), "tcp")
    failed.connection_failed(after_s)
    assert failed.path == path


def test_a_repeated_confirmation_does_not_extend_the_memory() -> None:
    """Otherwise a device that stays in one network would never try the better path again."""
    kept = working(choice(), "tcp")
    kept.succeeded(REMEMBERED_S - 1)
    kept.connection_failed(REMEMBERED_S)
    assert kept.path == "udp"


def test_the_best_way_is_nothing_to_remember() -> None:
    healed = working(choice(), "tcp")
    healed.connection_failed(REMEMBERED_S)
    working(healed, "udp", REMEMBERED_S)
    healed.moved("b", REMEMBERED_S + 1)
    healed.moved("a", REMEMBERED_S + 2)
    assert (healed.path, healed.reason) == ("udp", "")


def test_the_failure_of_the_last_way_clears_the_memory() -> None:
    tried = working(choice(), "tcp-relay")
    assert not tried.failed()
    tried.connection_failed(1.0)
    assert tried.path == "udp"


def test_so_many_addresses_are_remembered() -> None:
    tried = choice(host="0")
    for number in range(ADDRESSES_MAX + 1):
        tried.moved(str(number), 0.0)
        working(tried, "tcp")
    seen = []
    for host in ("0", "1"):
        tried.moved(host, 1.0)
        seen.append(tried.path)
    assert seen == ["udp", "tcp"]


def test_a_way_that_is_refused_gives_way_but_for_the_best() -> None:
    tried = choice("udp", "tcp")
    assert not tried.refused(0.0)
    tried.failed()
    assert tried.refused(0.0)
    assert tried.path == "udp", "there is no other"


def test_ways_are_chosen_by_transport() -> None:
    assert allowed_paths("AUTO", DATA_PATH_KINDS) == DATA_PATH_KINDS
    assert allowed_paths("TCP", DATA_PATH_KINDS) == ("tcp", "tcp-relay")
    assert allowed_paths("UDP", ("tcp", "udp")) == ("udp",)
    with pytest.raises(ValueError, match="allow at least one"):
        PathChoice((), "a")
