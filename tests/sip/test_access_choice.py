"""Choice among the access servers of one address of record: nearest, least loaded, by hash (SPEC J-01, J-08)."""

from __future__ import annotations

from collections import Counter
from ipaddress import ip_network

import pytest

from wanderbus.sip.proxy import access_choice
from wanderbus.sip.proxy.access_choice import AVOIDED_S, CALL_S_MAX, AccessChoice
from wanderbus.sip.proxy.access_policy import AccessPolicy, AccessRequest, NearestServer, RegisteredServer

USERS = [f"sip:user{number}@example.org" for number in range(1_000)]
NOW = 100.0


def servers(*numbers: int) -> list[RegisteredServer]:
    return [RegisteredServer(f"<urn:uuid:{number}>", ((f"10.0.0.{number}", 5062),)) for number in numbers]


def request(
    caller: str = USERS[0], call_id: str = "call", source: str = "192.0.2.1", *, begins: bool = True
) -> AccessRequest:
    return AccessRequest(caller, call_id, source, begins)


def by_hash(choice: AccessChoice, known: list[RegisteredServer]) -> dict[str, str]:
    return {user: choice.order(request(user, f"of {user}", begins=False), known, NOW)[0] for user in USERS}


def test_j01_users_are_spread_over_the_servers() -> None:
    counts = Counter(by_hash(AccessChoice(AccessPolicy()), servers(1, 2, 3, 4)).values())
    assert len(counts) == 4
    assert all(200 <= count <= 300 for count in counts.values()), counts


def test_j01_a_user_has_the_same_server_in_every_process_and_order_of_registration() -> None:
    first = by_hash(AccessChoice(AccessPolicy()), servers(1, 2, 3, 4))
    assert by_hash(AccessChoice(AccessPolicy()), servers(4, 2, 1, 3)) == first


def test_j08_only_the_users_of_a_server_that_leaves_move() -> None:
    choice = AccessChoice(AccessPolicy())
    before, after = by_hash(choice, servers(1, 2, 3, 4)), by_hash(choice, servers(1, 2, 4))
    moved = {user for user in USERS if before[user] != after[user]}
    assert moved == {user for user in USERS if before[user] == "<urn:uuid:3>"}
    assert len(set(map(after.__getitem__, moved))) == 3, "they are spread over all others"


def test_j08_a_server_that_joins_takes_its_share_and_no_other_user_moves() -> None:
    choice = AccessChoice(AccessPolicy())
    before, after = by_hash(choice, servers(1, 2, 3)), by_hash(choice, servers(1, 2, 3, 4))
    moved = [user for user in USERS if before[user] != after[user]]
    assert {after[user] for user in moved} == {"<urn:uuid:4>"}
    assert 200 <= len(moved) <= 300


@pytest.mark.parametrize(
    ("source", "nearest"),
    [
        ("192.0.2.1", "<urn:uuid:1>"),
        ("192.0.2.200", "<urn:uuid:2>"),
        ("::ffff:192.0.2.200", "<urn:uuid:2>"),
        ("2001:db8::7", "<urn:uuid:3>"),
    ],
)
def test_j01_the_smallest_network_of_the_caller_names_the_server(source: str, nearest: str) -> None:
    near = (
        NearestServer(ip_network("192.0.2.0/24"), "10.0.0.1"),
        NearestServer(ip_network("192.0.2.128/25"), "10.0.0.2", 5062),
        NearestServer(ip_network("192.0.2.192/26"), "10.0.0.2", 5999),
        NearestServer(ip_network("2001:db8::/32"), "10.0.0.3"),
    )
    choice = AccessChoice(AccessPolicy(nearest=near))
    for user in USERS[:20]:
        assert choice.order(request(user, user, source), servers(1, 2, 3), NOW)[0] == nearest


def test_without_a_registered_nearest_server_the_hash_decides() -> None:
    near = (NearestServer(ip_network("192.0.2.0/24"), "10.0.0.9"),)
    known = servers(1, 2, 3)
    assert by_hash(AccessChoice(AccessPolicy(nearest=near)), known) == by_hash(AccessChoice(AccessPolicy()), known)


def test_j01_the_least_loaded_server_is_chosen() -> None:
    choice = AccessChoice(AccessPolicy(choice="least_loaded"))
    known = servers(1, 2, 3)
    for number, user in enumerate(USERS[:30]):
        choice.order(request(user, f"call {number}"), known, NOW)
    assert [choice.load(each.name, NOW) for each in known] == [10, 10, 10]
    for number in range(30):
        choice.end(f"call {number}")
    assert choice.order(request(begins=False), known, NOW) == AccessChoice(AccessPolicy()).order(request(), known, NOW)


def test_calls_stop_counting_after_a_while() -> None:
    choice = AccessChoice(AccessPolicy(choice="least_loaded"))
    known = servers(1, 2)
    (busy, _) = choice.order(request(call_id="1"), known, NOW)
    assert choice.order(request(call_id="2", begins=False), known, NOW + CALL_S_MAX - 1)[0] != busy
    assert choice.order(request(call_id="2", begins=False), known, NOW + CALL_S_MAX)[0] == busy
    assert choice.load(busy, NOW + CALL_S_MAX) == 0


def test_a_call_keeps_its_server() -> None:
    """The second INVITE of a call answers the challenge of the first."""
    choice = AccessChoice(AccessPolicy(choice="least_loaded"))
    known = servers(1, 2)
    (first, other) = choice.order(request(call_id="1"), known, NOW)
    choice.order(request(call_id="2"), known, NOW)
    choice.end("2")
    assert choice.order(request(call_id="1"), known, NOW + 1) == [first, other]
    assert choice.load(first, NOW + 1) == 1
    choice.place("1", other, NOW + 2)
    assert choice.order(request(call_id="1"), known, NOW + 3) == [other, first]
    assert choice.order(request(call_id="1"), servers(1, 2, 3)[2:] + known, NOW + 3)[0] == other


def test_a_server_that_failed_is_tried_last_for_a_while() -> None:
    choice = AccessChoice(AccessPolicy())
    known = servers(1, 2, 3)
    (first, second, third) = choice.order(request(begins=False), known, NOW)
    choice.fail(first, NOW)
    assert choice.order(request(begins=False), known, NOW + 1) == [second, third, first]
    assert choice.order(request(begins=False), known, NOW + AVOIDED_S) == [first, second, third]
    choice.fail(first, NOW + 50)
    choice.answer(first, NOW + 51)
    assert choice.order(request(begins=False), known, NOW + 52) == [first, second, third]


def test_a_server_that_answers_others_is_not_avoided_for_one_silence() -> None:
    """Otherwise one caller, with requests that a server discards, could move all other users."""
    choice = AccessChoice(AccessPolicy())
    known = servers(1, 2)
    (first, second) = choice.order(request(begins=False), known, NOW)
    choice.answer(first, NOW + 1)
    choice.fail(first, NOW + 2, since=NOW)
    assert choice.order(request(begins=False), known, NOW + 2)[0] == first
    choice.fail(first, NOW + 4, since=NOW + 2)
    assert choice.order(request(begins=False), known, NOW + 4)[0] == second


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_choice, "CALLS_MAX", 5)
    monkeypatch.setattr(access_choice, "SERVERS_MAX", 5)
    choice = AccessChoice(AccessPolicy())
    for number in range(20):
        choice.order(request(USERS[number], f"call {number}"), servers(1, 2, 3), NOW + number)
        choice.fail(f"server {number}", NOW + number)
        choice.answer(f"other {number}", NOW + number)
    assert (len(choice._calls), len(choice._avoided), len(choice._answered)) == (5, 5, 5)
    assert sum(choice.load(each.name, NOW + 20) for each in servers(1, 2, 3)) == 5
    for number in range(20):
        choice.end(f"call {number}")
    assert not choice._loads


def test_a_single_server_is_not_counted() -> None:
    choice = AccessChoice(AccessPolicy())
    assert choice.order(request(), servers(1), NOW) == ["<urn:uuid:1>"]
    assert choice.load("<urn:uuid:1>", NOW) == 0
