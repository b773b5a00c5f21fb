"""Limits on wrong passwords, by a clock of the test's own (SPEC C-20)."""

from __future__ import annotations

import pytest

from wanderbus.parameters.signalling import LoginLimits
from wanderbus.sip.authentication.login_guard import NAME_CHARACTERS_MAX, NEWEST_MAX, LoginGuard, NewestByUser
from wanderbus.sip.authentication.verdicts import RequestSource
from wanderbus.sip.message.message import Request

HOUR_S = 3_600
HOME = RequestSource("192.0.2.1", "192.0.2.1")
STRANGER = RequestSource("198.51.100.7", "198.51.100.7")


def source(number: int) -> RequestSource:
    host = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    return RequestSource(host, host)


def tries(guard: LoginGuard, user: str, from_: RequestSource, now: float) -> bool:
    """Try a wrong password; return whether the guard let it be checked."""
    if guard.wait_s(user, from_, now) > 0:
        guard.refused(user, from_, now)
        return False
    guard.failed(user, from_, now)
    return True


def request(*hosts: str) -> Request:
    """Return a request with these Vias, the top one first."""
    vias = tuple(("Via", f"SIP/2.0/UDP {host};branch=z9hG4bKx") for host in hosts)
    return Request("REGISTER", "sip:example.org", vias)


def test_after_five_failures_the_pause_doubles_up_to_a_minute() -> None:
    guard, now, read_at = LoginGuard(), 0.0, []
    while now < 300:
        if tries(guard, "alice", STRANGER, now):
            read_at.append(now)
        now += 0.5
    assert read_at == [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 17.0, 33.0, 65.0, 125.0, 185.0, 245.0]


def test_one_source_gets_69_guesses_at_one_user_in_an_hour() -> None:
    guard = LoginGuard()
    assert sum(tries(guard, "alice", STRANGER, second / 4) for second in range(4 * HOUR_S)) == 69


def test_a_thousand_sources_get_a_hundred_and_fifty_guesses_at_one_user_in_an_hour() -> None:
    guard = LoginGuard()
    read = sum(tries(guard, "alice", source(number % 1_000), number / 4) for number in range(4 * HOUR_S))
    assert read == 30 + HOUR_S // 30 - 1


def test_one_source_gets_sixty_guesses_and_one_a_second_at_all_users() -> None:
    guard = LoginGuard()
    read = sum(tries(guard, f"user-{number}", STRANGER, number / 10) for number in range(10 * HOUR_S))
    assert read == pytest.approx(60 + HOUR_S, abs=2)


def test_strangers_do_not_delay_a_user_at_a_source_of_their_own() -> None:
    guard = LoginGuard()
    guard.accepted("alice", HOME, 0.0)
    for number in range(10_000):
        tries(guard, "alice", source(number), number / 10)
    assert guard.wait_s("alice", source(20_000), 1_000.0) > 0
    assert guard.wait_s("alice", HOME, 1_000.0) == 0
    assert guard.wait_s("alice", HOME, 86_000.0) == 0


def test_a_source_of_long_ago_is_not_a_users_own() -> None:
    guard = LoginGuard(LoginLimits(user_failures=1, user_recovery_s=1e9, lately_s_max=100.0))
    guard.accepted("alice", HOME, 0.0)
    tries(guard, "alice", STRANGER, 1.0)
    assert guard.wait_s("alice", HOME, 100.0) == 0
    assert guard.wait_s("alice", HOME, 101.0) > 0


def test_wrong_passwords_at_home_do_not_use_up_what_others_may() -> None:
    guard = LoginGuard(LoginLimits(user_failures=3, user_recovery_s=1e9, source_failures=3, source_recovery_s=1e9))
    guard.accepted("alice", HOME, 0.0)
    assert sum(tries(guard, "alice", HOME, second) for second in range(100)) > 5
    assert guard.wait_s("alice", STRANGER, 100.0) == 0
    assert guard.wait_s("bob", HOME, 100.0) == 0


def test_a_success_clears_the_failures_of_that_user_and_source_alone() -> None:
    guard = LoginGuard()
    for user, where in (("alice", HOME), ("alice", STRANGER), ("bob", HOME)):
        for _ in range(5):
            assert tries(guard, user, where, 0.0)
    guard.accepted("alice", HOME, 0.0)
    assert guard.wait_s("alice", HOME, 0.0) == 0
    assert guard.wait_s("alice", STRANGER, 0.0) > 0
    assert guard.wait_s("bob", HOME, 0.0) > 0


def test_failures_are_forgotten_after_an_hour() -> None:
    guard = LoginGuard()
    for second in range(600):
        tries(guard, "alice", STRANGER, second)
    at = 600 + HOUR_S + 1.0
    assert [tries(guard, "alice", STRANGER, at) for _ in range(6)] == [True] * 5 + [False]


def test_refusals_are_counted_read_or_not() -> None:
    guard = LoginGuard()
    counts = [guard.failed("alice", STRANGER, 0.0) for _ in range(5)]
    counts += [guard.refused("alice", STRANGER, 0.0) for _ in range(3)]
    assert counts == [1, 2, 3, 4, 5, 6, 7, 8]


def test_users_behind_the_known_proxy_are_sources_of_their_own() -> None:
    """Guesses by one of them do not delay the others."""
    guard = LoginGuard(proxies=["10.0.0.9"])
    mallory = guard.source_of(request("10.0.0.9:5060", "10.0.0.66;received=192.0.2.66"))
    alice = guard.source_of(request("10.0.0.9:5060", "192.0.2.1:7000"))
    assert (mallory.address, alice.address) == ("192.0.2.66", "192.0.2.1")
    for number in range(1_000):
        tries(guard, f"user-{number}", mallory, 0.0)
        tries(guard, "bob", mallory, 0.0)
    assert guard.wait_s("carol", mallory, 0.0) > 0
    assert guard.wait_s("alice", alice, 0.0) == 0


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("[2001:db8::9]:5060", "192.0.2.66"),
        ("[2001:DB8:0:0::9]", "192.0.2.66"),
        ("[2001:db8::6666]", "2001:db8::/64"),
    ],
)
def test_a_neighbour_of_the_proxy_in_its_network_of_ipv6_is_no_proxy(peer: str, address: str) -> None:
    """A guesser there would be a new source with each sender that it makes up."""
    guard = LoginGuard(proxies=["2001:DB8::9"])
    assert guard.source_of(request(peer, "192.0.2.66")).address == address


def test_names_in_asserted_headers_of_unknown_hosts_are_not_believed() -> None:
    guard = LoginGuard()
    invented = [guard.source_of(request("198.51.100.7", f"10.0.0.{number}")) for number in range(200)]
    assert {where.address for where in invented} == {"198.51.100.7"}
    assert len({where.path for where in invented}) == 200
    assert sum(tries(guard, f"user-{number}", where, 0.0) for number, where in enumerate(invented)) == 60
    guard.accepted("alice", guard.source_of(request("203.0.113.1", "10.0.0.1")), 0.0)
    assert guard.wait_s("alice", invented[1], 0.0) > 0


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("[2001:db8:1:2:3:4:5:6]:5060", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::9]", "2001:db8:1:3::/64"),
        ("[::ffff:192.0.2.1]", "192.0.2.1"),
        ("192.0.2.1:9", "192.0.2.1"),
        ("phone.Example.org", "phone.example.org"),
    ],
)
def test_a_network_of_ipv6_is_one_source(host: str, address: str) -> None:
    assert LoginGuard().source_of(request(host)) == RequestSource(address, address)


@pytest.mark.parametrize("hosts", [(), ("",), ("10.0.0.1", "")])
def test_a_source_that_cannot_be_read_is_a_source_too(hosts: tuple[str, ...]) -> None:
    assert LoginGuard().source_of(request(*hosts)).path in ("?", "10.0.0.1")


def test_memory_is_bounded() -> None:
    guard = LoginGuard(LoginLimits(entries_max=100, source_failures=1e9))
    for number in range(10_000):
        tries(guard, "x" * 10_000 + str(number), source(number), number / 100)
        tries(guard, str(number), source(number), number / 100)
        guard.accepted(f"u{number}", source(number), 0.0)
    assert len(guard) == 100
    assert len(guard._known._noted) == 100
    assert max(map(len, guard._users)) == NAME_CHARACTERS_MAX


def test_a_guesser_cannot_have_a_count_forgotten_by_failing_as_many_others() -> None:
    guard = LoginGuard(LoginLimits(entries_max=100))
    read = 0
    for turn in range(100):
        for number in range(200):
            tries(guard, f"user-{number}", source(turn * 500 + number), 0.0)
        read += sum(tries(guard, "alice", source(turn * 500 + 200 + number), 0.0) for number in range(100))
    assert read <= 60


def test_idle_counts_give_way_to_new_ones() -> None:
    guard = LoginGuard(LoginLimits(entries_max=10))
    for number in range(100):
        assert tries(guard, f"user-{number}", source(number), 31.0 * number)
    assert "user-99" in guard._users


def test_the_newest_sources_of_each_user_are_remembered() -> None:
    newest: NewestByUser[int] = NewestByUser(2)
    for number in range(NEWEST_MAX + 1):
        newest.note("alice", number, float(number))
    assert [newest.noted_at("alice", number) for number in (0, 1, NEWEST_MAX)] == [None, 1.0, float(NEWEST_MAX)]
    newest.forget("alice", 1)
    newest.forget("nobody", 1)
    assert newest.noted_at("alice", 1) is None
    newest.note("bob", 1, 0.0)
    newest.note("carol", 1, 0.0)
    assert newest.noted_at("alice", NEWEST_MAX) is None


def test_without_pauses_and_with_zeros_nothing_breaks() -> None:
    zeros = LoginLimits(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    guard = LoginGuard(zeros)
    for number in range(100):
        tries(guard, "alice", source(number % 3), float(number))
        assert guard.wait_s("alice", HOME, number + 0.5) == 0
