"""Moves of channel groups by the logs of simulated servers: each attempt is one row (SPEC J-08, T-08)."""

from __future__ import annotations

from tests.simulation.group_domain import NAMES, Domain, user
from wanderbus.pipeline.analytics.group_moves import GroupMove, GroupMoves


def moves_of(domain: Domain, *names: str) -> list[GroupMove]:
    """Return the moves by the logs of these servers, one log after the other."""
    moves = GroupMoves()
    for name in names:
        for record in domain.nodes[name].disk.records():
            moves.take(name, record)
    return list(moves.rows())


def test_t08_a_move_has_its_steps_and_the_publishes_that_waited() -> None:
    domain = Domain()
    alice = domain.phone("s3", user("alice"))
    domain.slow("s3", "s1", 0.1)
    domain.stream(alice, "A")
    domain.wait(0.5)
    assert domain.move("s2") == []
    for names in (NAMES, NAMES[::-1]):
        (move,) = moves_of(domain, *names)
        assert (move.channel_group, move.epoch, move.source, move.target) == (0, 2, "s1", "s2")
        assert (move.is_forced, move.stayed_us, move.publishers) == (False, None, 1)
        assert move.waited
        steps = [move.begun_us, move.paused_us, move.moved_us, move.adopted_us]
        assert None not in steps
        assert steps == sorted(steps, key=lambda step: step or 0)
        assert steps[0] != steps[1]


def test_t08_moves_that_were_given_up_are_rows_of_their_own() -> None:
    domain = Domain()
    domain.nodes["s3"].fill_disk(is_full=True)
    assert domain.move("s2")
    domain.nodes["s3"].fill_disk(is_full=False)
    domain.wait()
    assert domain.move("s2") == []
    given_up, moved = moves_of(domain, *NAMES)
    assert (given_up.moved_us, given_up.adopted_us, given_up.epoch) == (None, None, moved.epoch)
    assert (given_up.begun_us or 0) < (given_up.stayed_us or 0) < (moved.begun_us or 0) < (moved.adopted_us or 0)


def test_t08_a_leader_that_was_gone_has_no_pause() -> None:
    domain = Domain()
    domain.nodes["s1"].crash(lose_rows=False)
    domain.wait()
    assert domain.move("s2", at="s2", force=True) == []
    domain.nodes["s1"].start()
    domain.wait()
    (move,) = moves_of(domain, *NAMES)
    assert (move.source, move.target, move.is_forced, move.epoch) == ("s1", "s2", True, 3)
    assert (move.paused_us, move.moved_us) == (None, move.adopted_us)
    assert (move.begun_us or 0) <= (move.moved_us or 0)


def test_t08_without_the_log_of_the_former_leader_its_steps_are_unknown() -> None:
    domain = Domain()
    assert domain.move("s2") == []
    (move,) = moves_of(domain, "s2", "s3")
    assert (move.source, move.begun_us, move.moved_us, move.waited) == ("s1", None, None, None)
    assert move.adopted_us
    (move,) = moves_of(domain, "s1", "s3")
    assert move.moved_us
    assert move.adopted_us is None
