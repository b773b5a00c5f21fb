"""Messages about interest that a channel gets when a session moves from one server to another (SPEC L-03)."""

from __future__ import annotations

import pytest

from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.simulation.handover.three_servers import ALICE, WANTED, ThreeServers, two_by_two


@pytest.mark.parametrize("of_others", [WANTED, "x > 0"])
@pytest.mark.parametrize("mode", ["perfect", "none"])
@pytest.mark.parametrize("is_decentralised", [False, True])
@pytest.mark.parametrize(
    ("target_has_it", "source_needs_it", "senders"),
    [(True, True, []), (True, False, ["s2"]), (False, True, ["s3"]), (False, False, ["s2", "s3"])],
)
def test_l03_a_channel_is_told_only_what_changes(
    is_decentralised: bool,
    mode: InterestMode,
    of_others: str,
    target_has_it: bool,
    source_needs_it: bool,
    senders: list[str],
) -> None:
    domain = two_by_two(
        mode,
        of_others,
        is_decentralised=is_decentralised,
        target_has_it=target_has_it,
        source_needs_it=source_needs_it,
    )
    assert domain.updates() == senders


@pytest.mark.parametrize("is_decentralised", [False, True])
def test_l03_interest_that_has_moved_ends_with_its_subscription(is_decentralised: bool) -> None:
    domain = ThreeServers("perfect", is_decentralised=is_decentralised)
    phone = domain.subscribe(ALICE, "s2", WANTED)
    domain.move()
    domain.sent.clear()
    (identity,) = phone.asked
    phone.unsubscribe(identity)
    domain.wait()
    assert phone.asked[identity].state == "ended"
    assert domain.updates() == ["s3"]
