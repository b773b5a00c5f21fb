"""Reachability of other servers: what is reported, when, why, and how often (SPEC J-12, X18)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.peers.test_links import Domain, connected
from wanderbus.machine import TimerFired
from wanderbus.peers.link_health import ServerHealth
from wanderbus.peers.link_parameters import FIRST_LINK_S, REPORT_S
from wanderbus.peers.messages import (
    ConnectServer,
    DisconnectServer,
    PeerUnreachable,
    SendOnServerLink,
    ServerLinkOpened,
    ServerReachable,
)

NOTICED_S = 1.3
"""Time from the first packet without an answer to the report."""

TABLES = {"hash_key": b"k" * 8, "model": b"m" * 8, "pins": b"p" * 8}


def troubles(domain: Domain, name: str) -> list[tuple[float, str]]:
    """Return the times and reasons of the reports of a server that others cannot be reached."""
    reports = [(at, each) for at, server, each in domain.health if server == name]
    return [(at, each.reason) for at, each in reports if isinstance(each, PeerUnreachable)]


def test_a_dead_link_with_data_is_reported_within_a_second_or_so_and_when_it_is_over() -> None:
    domain = connected("ab", "ba")
    domain.run(5)
    assert domain.health == []
    domain.lost = lambda source, destination, data: True
    domain.feed("a", SendOnServerLink(domain.link("a", is_ours=True), b"event"))
    cut_at = domain.world.now
    domain.run(NOTICED_S)
    ((at, reason),) = troubles(domain, "a")
    assert at - cut_at <= NOTICED_S
    assert reason.startswith("10.0.0.2:5601 has acknowledged nothing for 0.")
    domain.run(20)
    assert len(troubles(domain, "a")) == 1, "the link fails and is offered again; that is the same trouble"
    domain.lost = lambda source, destination, data: False
    domain.run(8)
    (over,) = [each for _, name, each in domain.health if name == "a" and isinstance(each, ServerReachable)]
    assert 18 < over.seconds < 30


def test_a_link_on_which_something_is_always_unacknowledged_is_well() -> None:
    domain = connected("ab")
    conditions = domain.network.conditions
    conditions.delay_min_s = conditions.delay_max_s = 0.1
    link = domain.link("a", is_ours=True)
    for _ in range(100):
        domain.feed("a", SendOnServerLink(link, b"event"))
        domain.run(0.05)
    assert domain.health == []


def test_a_dead_link_without_data_is_reported_by_both_sides_after_a_keepalive() -> None:
    domain = connected("ab", "ba")
    domain.lost = lambda source, destination, data: True
    domain.run(1.0 + NOTICED_S)
    assert [len(troubles(domain, name)) for name in "ab"] == [1, 1]


@pytest.mark.parametrize("deaf", ["a", "b"])
def test_a_link_that_is_dead_in_one_direction_is_reported_by_both_sides(deaf: str) -> None:
    domain = connected("ab", "ba")
    domain.lost = lambda source, destination, data: destination == deaf
    domain.run(5)
    assert [len(troubles(domain, name)) for name in "ab"] == [1, 1]


def test_a_server_that_never_answers_is_reported_after_the_time_in_which_others_start() -> None:
    domain = Domain("a", "b")
    domain.kill("b")
    domain.feed("a", ConnectServer("b"))
    domain.run(FIRST_LINK_S + 0.5)
    ((at, reason),) = troubles(domain, "a")
    assert at >= FIRST_LINK_S
    assert reason == "10.0.0.2:5601 has not answered for 3.0 s"


def test_a_server_that_sends_from_another_address_is_reported_with_it() -> None:
    domain = connected("ab", "ba")
    domain.kill("b")
    domain.addresses["b"] = ("10.0.0.2", 5699)
    domain.start("b")
    domain.feed("b", ConnectServer("a"))
    domain.run(8)
    reasons = [reason for _, reason in troubles(domain, "a")]
    assert reasons[-1] == "it sends from 10.0.0.2:5699, and the domain file here has 10.0.0.2:5601"


def test_a_link_that_fails_again_and_again_is_reported_at_a_bounded_rate() -> None:
    domain = connected("ab", "ba")
    for _ in range(60):
        domain.lost = lambda source, destination, data: True
        domain.run(1.9)
        domain.lost = lambda source, destination, data: False
        domain.run(1.1)
    times = [at for at, _ in troubles(domain, "a")]
    assert 5 <= len(times) <= 180 / REPORT_S
    assert all(later - earlier >= REPORT_S for earlier, later in pairwise(times))


def test_a_process_that_was_suspended_blames_nobody() -> None:
    domain = connected("ab")
    link = domain.link("a", is_ours=True)
    machine = domain.machines["a"]
    machine.step([SendOnServerLink(link, b"x")], domain.world.now)
    for inputs_at in (0.25, 60.0):
        reports = machine.step([TimerFired(("look",))], domain.world.now + inputs_at)
        assert not any(isinstance(each, PeerUnreachable) for each in reports)


@pytest.mark.parametrize("opener", ["ab", "ba"])
def test_servers_whose_tables_differ_have_no_link_and_both_say_why(opener: str) -> None:
    domain = Domain("a", "b")
    domain.start("a", tables=TABLES)
    domain.start("b", tables=TABLES | {"model": b"n" * 8})
    domain.feed(opener[0], ConnectServer(opener[1]))
    domain.run(30)
    assert not any(isinstance(each, ServerLinkOpened) for _, _, each in domain.reports)
    for name, own, other in (("a", "6d6d6d6d", "6e6e6e6e"), ("b", "6e6e6e6e", "6d6d6d6d")):
        ((_, reason),) = troubles(domain, name)
        assert reason == f"its domain file differs in model ({own} here, {other} there); use the same file and restart"


def test_servers_have_a_link_again_once_their_tables_are_equal() -> None:
    domain = Domain("a", "b")
    domain.start("a", tables=TABLES)
    domain.start("b", tables=TABLES | {"pins": b"n" * 8})
    domain.feed("a", ConnectServer("b"))
    domain.run(3)
    domain.kill("b")
    domain.start("b", tables=TABLES)
    domain.run(6)
    assert domain.link("a", is_ours=True)
    assert [type(each) for _, name, each in domain.health if name == "a"] == [PeerUnreachable, ServerReachable]
    assert domain.machines["a"].trouble("b") == ""


def test_another_key_is_the_only_difference_that_is_named() -> None:
    domain = Domain("a", "b")
    domain.start("a", tables=TABLES)
    domain.start("b", tables=dict.fromkeys(TABLES, b"z" * 8))
    domain.feed("a", ConnectServer("b"))
    domain.run(3)
    ((_, reason),) = troubles(domain, "a")
    assert "hash_key (6b6b6b6b here, 7a7a7a7a there)" in reason
    assert "model" not in reason


def test_a_server_of_a_version_without_tables_is_refused() -> None:
    domain = Domain("a", "b")
    domain.start("a", tables=TABLES)
    domain.feed("b", ConnectServer("a"))
    domain.run(3)
    assert not any(isinstance(each, ServerLinkOpened) for _, _, each in domain.reports)
    ((_, reason),) = troubles(domain, "a")
    assert "another version" in reason


def test_a_forged_refusal_changes_nothing() -> None:
    domain = Domain("a", "b")
    domain.lost = lambda source, destination, data: source == "b"
    domain.start("a", tables=TABLES)
    domain.start("b", tables=TABLES | {"model": b"n" * 8})
    domain.feed("a", ConnectServer("b"))
    domain.run(1)
    refusal = domain.handshakes("b")[0]
    domain.inject(refusal[:-1] + bytes([refusal[-1] ^ 1]), "a")
    assert domain.machines["a"].dropped["forged"] == 1
    assert troubles(domain, "a") == []
    assert len(refusal) < len(domain.handshakes("a")[0])


def test_j11_a_server_that_never_had_a_link_may_not_know_one_that_joined() -> None:
    health = ServerHealth("s1", ("127.0.0.1", 5601), "; its domain file may lack s4")
    health.wanted(0.0)
    (report,) = health.look([], FIRST_LINK_S)
    assert isinstance(report, PeerUnreachable)
    assert report.reason.endswith(" s; its domain file may lack s4")
    health.opened()
    health.look([], FIRST_LINK_S + 1)
    health.closed("it failed", FIRST_LINK_S + 2)
    (report,) = health.look([], FIRST_LINK_S + 2 * REPORT_S)
    assert isinstance(report, PeerUnreachable)
    assert report.reason.endswith("; its last link was closed: it failed")


def test_a_server_that_is_no_longer_wanted_is_not_reported_as_reachable() -> None:
    domain = Domain("a", "b")
    domain.lost = lambda source, destination, data: True
    domain.feed("a", ConnectServer("b"))
    domain.run(FIRST_LINK_S + 1)
    assert len(troubles(domain, "a")) == 1
    domain.feed("a", DisconnectServer("b"))
    domain.run(5)
    assert not [each for _, _, each in domain.health if isinstance(each, ServerReachable)]


def test_the_report_about_a_server_that_never_had_a_link_gives_advice() -> None:
    domain = Domain("a", "b")
    domain.nodes["a"].kill()
    domain.start("a", hint="look at its card")
    domain.lost = lambda source, destination, data: True
    domain.feed("a", ConnectServer("b"))
    domain.run(FIRST_LINK_S + 1)
    ((_, reason),) = troubles(domain, "a")
    assert reason.endswith(" s; look at its card")
