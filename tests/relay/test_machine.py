"""Commands and responses like rtpengine's, and the resources of the host that a relay uses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.relay.desk import A_HOME, A_ID, B_HOME, B_ID, PROXY, RELAY, Desk, medium, packet, sdp
from wanderbus.limits import UDP_PAYLOAD_BYTES_MAX
from wanderbus.machine import DatagramReceived, SendDatagram
from wanderbus.refusals import Limited
from wanderbus.relay import ng
from wanderbus.relay.calls import DIALOGUES_MAX
from wanderbus.relay.machine import NO_PORTS, SDP_TOO_LONG
from wanderbus.relay.ng import LOAD_LIMIT, NAME_CHARACTERS_MAX
from wanderbus.sip.message.sdp import MediaDescription

# Reasons in the errors of rtpengine 10.5 for the same commands.
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"command": "xxxx"}, "Unrecognized command"),
    ({"command": ["offer"]}, "Unrecognized command"),
    ({}, 'Dictionary contains no key "command"'),
    ({"command": "offer", "sdp": "x"}, "No call-id in message"),
    ({"command": "offer", "sdp": "x", "call-id": "c"}, "No from-tag in message"),
    ({"command": "offer", "call-id": "c", "from-tag": "a"}, "No SDP body in message"),
    ({"command": "offer", "call-id": "c", "from-tag": "a", "sdp": "hello"}, "Failed to parse SDP"),
    ({"command": "answer", "call-id": "c", "from-tag": "a", "sdp": "x"}, "No to-tag in message"),
    ({"command": "answer", "call-id": "c", "from-tag": "a", "to-tag": "b", "sdp": sdp(B_HOME)}, "Unknown call-id"),
    ({"command": "query", "call-id": "c"}, "Unknown call-id"),
    ({"command": "query"}, "No call-id in message"),
    ({"command": "delete"}, "No call-id in message"),
]


@pytest.mark.parametrize(("fields", "reason"), REFUSALS)
def test_refusals_are_rtpengines(fields: dict[str, object], reason: str) -> None:
    desk = Desk()
    assert desk.give(fields) == {"result": "error", "error-reason": reason}
    assert (desk.open, desk.relay.calls) == ({}, {})


def test_a_description_that_grows_beyond_a_datagram_is_refused() -> None:
    """Each c= line is rewritten; an unsendable response would make the proxy stop using this relay."""
    desk = Desk()
    long = sdp(A_HOME) + "c=IN IP4 192.0.2.10\r\n" + "c=\r\n" * 4_000
    assert desk.offer(long) == {"result": "error", "error-reason": SDP_TOO_LONG}
    assert (desk.open, desk.relay.calls) == ({}, {})


def test_the_end_of_a_large_call_is_answered_within_a_datagram() -> None:
    desk = Desk(ports=range(30_000, 30_600))
    head, line = sdp(A_HOME).split("m=")
    for number in range(DIALOGUES_MAX):
        assert desk.offer(f"{head}m={line}" + f"m={line}" * 7, tag=f"a{number}")["result"] == "ok"
    (said,) = desk.datagram(ng.write_command(b"end", ng.delete(call_id="call")))
    assert len(said) <= UDP_PAYLOAD_BYTES_MAX
    assert ng.read_reply(said) == (b"end", {"result": "ok"})
    assert desk.open == {}


def test_ping() -> None:
    assert Desk().give(ng.ping()) == {"result": "pong"}


def test_an_offer_and_its_answer_each_get_a_port_of_the_relay() -> None:
    desk = Desk()
    offered, answered = desk.offer(sdp(A_HOME, A_ID)), desk.answer(sdp(B_HOME, B_ID))
    shown_to_b, shown_to_a = medium(offered["sdp"]), medium(answered["sdp"])
    assert (offered["result"], answered["result"]) == ("ok", "ok")
    assert (shown_to_a.address, shown_to_b.address) == (RELAY, RELAY)
    assert {shown_to_a.port, shown_to_b.port} == set(desk.open)
    assert len(desk.open) == 2


def test_a_repeated_or_new_offer_keeps_its_ports() -> None:
    desk = Desk()
    first = medium(desk.offer(sdp(A_HOME, A_ID))["sdp"]).port
    assert medium(desk.offer(sdp(A_HOME, A_ID))["sdp"]).port == first
    back = medium(desk.answer(sdp(B_HOME, B_ID))["sdp"]).port
    assert medium(desk.offer(sdp(A_HOME, A_ID), to_tag="b")["sdp"]).port == first
    assert medium(desk.offer(sdp(B_HOME, B_ID), tag="b", to_tag="a")["sdp"]).port == back
    assert medium(desk.answer(sdp(A_HOME, A_ID), tag="b", to="a")["sdp"]).port == first


def test_a_call_that_the_relay_has_forgotten_is_taken_up_by_its_next_offer() -> None:
    desk = Desk()
    desk.offer(sdp(B_HOME, B_ID), tag="b", to_tag="a")
    shown = medium(desk.answer(sdp(A_HOME, A_ID), tag="b", to="a")["sdp"])
    assert desk.open[shown.port].announced == B_HOME


def test_branches_of_a_call_have_ports_of_their_own() -> None:
    desk = Desk()
    ports = {branch: medium(desk.offer(sdp(A_HOME, A_ID), via_branch=branch)["sdp"]).port for branch in ("x", "y")}
    assert ports["x"] != ports["y"]
    desk.answer(sdp(B_HOME, B_ID), via_branch="x")
    assert desk.open[ports["x"]].announced == B_HOME
    desk.answer(sdp(("192.0.2.30", 6_000), B_ID + 1), to="c", via_branch="y")
    assert desk.open[ports["y"]].announced == ("192.0.2.30", 6_000)
    desk.delete(from_tag="a", to_tag="b")
    assert (ports["x"] in desk.open, ports["y"] in desk.open) == (False, True)


def test_a_branch_that_was_not_answered_is_deleted_alone() -> None:
    desk = Desk()
    ports = {branch: medium(desk.offer(sdp(A_HOME, A_ID), via_branch=branch)["sdp"]).port for branch in ("x", "y")}
    desk.delete(from_tag="a", via_branch="x")
    assert (ports["x"] in desk.open, ports["y"] in desk.open) == (False, True)


def test_the_last_answer_of_a_forked_call_counts() -> None:
    desk = Desk()
    shown = medium(desk.offer(sdp(A_HOME, A_ID))["sdp"])
    desk.answer(sdp(B_HOME, B_ID), to="b")
    desk.answer(sdp(("192.0.2.30", 6_000), B_ID + 1), to="c")
    assert desk.open[shown.port].source == ("192.0.2.30", 6_000)
    assert len(desk.open) == 2


def test_deleting_frees_the_ports_and_reports_the_traffic() -> None:
    desk = Desk()
    a, b = desk.call()
    a.take(A_HOME, b"12345", 1.0)
    b.take(("203.0.113.66", 1), b"x", 1.0)
    reply = desk.delete(from_tag="a")
    assert (reply["result"], reply["totals"]["RTP"]) == ("ok", {"packets": 1, "bytes": 5, "errors": 1})
    assert (desk.open, desk.relay.calls, desk.relay.sides, len(desk.closed)) == ({}, {}, {}, 2)


@pytest.mark.parametrize("named", [{"call": "other"}, {"from_tag": "z"}, {"from_tag": "a", "to_tag": "z"}])
def test_deleting_what_is_not_there_is_no_error(named: dict[str, str]) -> None:
    desk = Desk()
    desk.call()
    assert desk.delete(**named) == {"warning": "Call-ID not found or tags didn't match", "result": "ok"}
    assert len(desk.open) == 2


@pytest.mark.parametrize("tags", [{}, {"from_tag": "a"}, {"from_tag": "b"}, {"from_tag": "b", "to_tag": "a"}])
def test_either_side_may_end_a_call(tags: dict[str, str]) -> None:
    desk = Desk()
    desk.call()
    desk.delete(**tags)
    assert desk.open == {}


def test_a_medium_that_is_refused_or_changes_its_kind_gives_its_ports_back() -> None:
    desk = Desk()
    desk.call()
    before = set(desk.open)
    assert medium(desk.offer(sdp((A_HOME[0], 0), A_ID), to_tag="b")["sdp"]).port == 0
    assert desk.open == {}
    desk.offer(sdp(BROKER_TCP, A_ID, protocol="TCP", setup="passive"), to_tag="b")
    assert {side.transport for side in desk.open.values()} == {"TCP"}
    assert not before & set(desk.open)


BROKER_TCP = ("192.0.2.10", 5_072)


def test_each_medium_is_a_stream() -> None:
    desk = Desk()
    more = [MediaDescription(media="audio", address="192.0.2.10", port=port) for port in (7_000, 0)]
    desk.offer(sdp(A_HOME, A_ID, more=more))
    assert len(desk.open) == 4


def test_media_are_bounded() -> None:
    desk = Desk(limits={"media_max": 2})
    more = [MediaDescription(address="192.0.2.10", port=7_000 + number) for number in range(2)]
    assert desk.offer(sdp(A_HOME, A_ID, more=more))["error-reason"] == "More than 2 media in one description"
    assert (desk.open, desk.relay.calls) == ({}, {})


def test_branches_of_a_call_are_bounded() -> None:
    """Also those for which there is no port, and no medium."""
    desk = Desk(ports=range(30_000, 30_004))
    nothing = sdp((A_HOME[0], 0))
    results = [desk.offer(nothing, via_branch=str(number))["result"] for number in range(DIALOGUES_MAX + 1)]
    assert results == ["ok"] * DIALOGUES_MAX + ["error"]


@pytest.mark.parametrize("key", ["call-id", "from-tag", "to-tag", "via-branch"])
def test_names_are_bounded(key: str) -> None:
    desk = Desk()
    command = {"command": "offer", "call-id": "c", "from-tag": "a", "sdp": sdp(A_HOME)}
    assert desk.give(command | {key: "x" * NAME_CHARACTERS_MAX})["result"] == "ok"
    assert desk.give(command | {key: "x" * (NAME_CHARACTERS_MAX + 1)})["error-reason"] == f"The {key} is too long"


def test_calls_are_bounded_and_a_proxy_may_ask_another_relay() -> None:
    desk = Desk(limits={"calls_max": 2})
    for call in ("1", "2"):
        desk.offer(sdp(A_HOME), call=call)
    assert desk.offer(sdp(A_HOME), call="3") == {"result": "load limit", "message": LOAD_LIMIT}
    bare = {"command": "offer", "call-id": "3", "from-tag": "a", "sdp": sdp(A_HOME)}
    assert desk.give(bare) == {"result": "error", "error-reason": LOAD_LIMIT}
    assert desk.answer(sdp(B_HOME), call="2")["result"] == "ok"
    assert desk.relay.counters.refused == 2
    assert desk.limited == [Limited("relay.limits.calls_max", "relay", "call refused")] * 2


def test_streams_over_their_rate_are_reported_with_their_source() -> None:
    desk = Desk(limits={"stream_datagrams_per_s": 100})
    desk.offer(sdp(A_HOME, A_ID))
    desk.answer(sdp(B_HOME, B_ID))
    (side,) = (side for side in desk.open.values() if side.source == A_HOME)
    for _ in range(15):
        side.take(A_HOME, b"x", desk.now)
    desk.sleep(20.0)
    assert desk.limited == [
        Limited("relay.limits.stream_datagrams_per_s", A_HOME[0], "dropped: too many datagrams or bytes", 5)
    ]


def test_ports_are_bounded() -> None:
    desk = Desk(ports=range(30_000, 30_004))
    for call in ("1", "2"):
        desk.offer(sdp(A_HOME), call=call)
    assert desk.offer(sdp(A_HOME), call="3")["result"] == "load limit"
    more = [MediaDescription(address="192.0.2.10", port=7_000)]
    assert desk.offer(sdp(A_HOME, more=more), call="1")["error-reason"] == NO_PORTS
    desk.delete(call="2")
    assert desk.offer(sdp(A_HOME), call="3")["result"] == "ok"


def test_a_port_that_another_program_has_is_passed_over() -> None:
    desk = Desk(ports=range(30_000, 30_006))
    desk.taken = {30_000, 30_001, 30_002}
    desk.call()
    assert len(desk.open) == 2
    assert not desk.taken & set(desk.open)


@pytest.mark.parametrize("free", [0, 1])
def test_an_offer_without_enough_ports_is_refused(free: int) -> None:
    desk = Desk(ports=range(30_000, 30_006))
    desk.taken = set(range(30_000 + free, 30_006))
    assert desk.offer(sdp(A_HOME))["error-reason"] == NO_PORTS
    assert desk.open == {}
    desk.taken = set()
    assert desk.offer(sdp(A_HOME))["result"] == "ok"
    assert len(desk.open) == 2


def test_a_freed_port_rests_until_all_others_were_used() -> None:
    desk = Desk(ports=range(30_000, 30_010))
    desk.call()
    first = set(desk.open)
    for number in range(4):
        desk.delete(call=f"call{number}" if number else "call")
        desk.offer(sdp(A_HOME), call=f"call{number + 1}")
        assert not first & set(desk.open)


def test_ports_are_not_handed_out_in_order() -> None:
    desk = Desk()
    for number in range(20):
        desk.offer(sdp(A_HOME), call=str(number))
    assert list(desk.open) != sorted(desk.open)


def test_a_silent_call_is_removed() -> None:
    desk = Desk(limits={"idle_s": 60.0})
    a, _ = desk.call()
    desk.sleep(50)
    a.take(A_HOME, b"x", desk.now)
    desk.sleep(50)
    assert len(desk.open) == 2
    a.take(("203.0.113.66", 1), b"a stranger keeps nothing alive", desk.now)
    desk.sleep(20)
    assert (desk.open, desk.relay.calls, desk.relay.counters.reclaimed) == ({}, {}, 1)
    desk.sleep(60)
    assert desk.timers == {}, "a relay with nothing to do sleeps"


def test_signalling_keeps_a_call() -> None:
    desk = Desk(limits={"idle_s": 60.0})
    desk.call()
    for _ in range(3):
        desk.sleep(50)
        desk.offer(sdp(A_HOME, A_ID), to_tag="b")
    assert (len(desk.open), desk.relay.counters.reclaimed) == (2, 0)


def test_a_repeated_cookie_gets_the_same_answer_and_does_nothing() -> None:
    desk = Desk()
    command = ng.write_command(b"c", ng.describe("offer", sdp(A_HOME), call_id="x", from_tag="a"))
    first, again = desk.datagram(command), desk.datagram(command)
    assert first == again != []
    desk.delete(call="x")
    assert desk.datagram(command) == first
    assert (desk.open, desk.relay.counters.repeated) == ({}, 2)


def test_a_cookie_is_of_its_proxy_and_is_forgotten_in_time() -> None:
    desk = Desk()
    assert desk.datagram(b"c d7:command4:pinge") == [b"c d6:result4:ponge"]
    listing = b"c d7:command4:liste"
    assert desk.datagram(listing) == [b"c d6:result4:ponge"]
    assert b"calls" in desk.datagram(listing, ("10.0.0.2", 5_000))[0]
    desk.sleep(40)
    assert b"calls" in desk.datagram(listing)[0]


def test_remembered_answers_are_bounded() -> None:
    desk = Desk(limits={"replies_max": 3})
    for number in range(4):
        desk.datagram(b"%d d7:command4:pinge" % number)
    assert b"calls" in desk.datagram(b"0 d7:command4:liste")[0]
    assert b"pong" in desk.datagram(b"3 d7:command4:liste")[0]


def test_malformed_commands_with_a_cookie_are_answered() -> None:
    desk = Desk()
    assert desk.datagram(b"c foo") == [b"c d6:result5:error12:error-reason22:Invalid NG data formate"]
    assert json.loads(desk.datagram(b"c {foo")[0][2:])["error-reason"] == ng.INVALID
    assert desk.datagram(b"nocookie") == []
    assert desk.relay.counters.unreadable == 3


def test_commands_of_strangers_are_not_answered() -> None:
    desk = Desk(proxies=[PROXY[0]])
    ping = b"c d7:command4:pinge"
    assert desk.datagram(ping, ("203.0.113.66", 1)) == []
    assert desk.datagram(ping, (PROXY[0], 9_999)) != []
    assert desk.relay.counters.strangers == 1


def test_an_offer_deleted_before_its_ports_are_open_leaves_nothing() -> None:
    """Both may be in one batch."""
    desk = Desk()
    offer = ng.write_command(b"1", ng.describe("offer", sdp(A_HOME), call_id="x", from_tag="a"))
    end = ng.write_command(b"2", ng.delete(call_id="x"))
    answers = desk.step(*(DatagramReceived("ng", PROXY, data) for data in (offer, end)))
    assert [ng.read_reply(answer)[1]["result"] for answer in answers] == ["error", "ok"]
    assert (desk.open, desk.relay.sides, desk.relay.calls) == ({}, {}, {})


def test_the_address_of_the_message_is_taken_where_the_proxy_asks_for_it() -> None:
    desk = Desk()
    desk.offer(sdp(("10.1.1.1", 4_000), A_ID), source_ip="203.0.113.5")
    assert {side.announced for side in desk.open.values()} == {("203.0.113.5", 4_000), None}
    trusting = ng.describe("offer", sdp(("10.1.1.1", 4_000), A_ID), call_id="2", from_tag="a")
    desk.give(trusting | {"received-from": ["IP4", "203.0.113.5"]})
    assert ("10.1.1.1", 4_000) in {side.announced for side in desk.open.values()}


@pytest.mark.parametrize(
    ("fields", "replaced"),
    [({"replace": ["origin"]}, True), ({"flags": ["replace-origin"]}, True), ({"flags": ["unheard of"]}, False)],
)
def test_the_origin_is_replaced_where_the_proxy_asks_for_it(fields: dict[str, object], replaced: bool) -> None:
    command = {"command": "offer", "call-id": "c", "from-tag": "a", "sdp": sdp(A_HOME)} | fields
    (origin,) = (line for line in Desk().give(command)["sdp"].splitlines() if line.startswith("o="))
    assert (RELAY in origin) is replaced


def test_a_query_reports_forwarded_and_dropped_datagrams() -> None:
    desk = Desk()
    a, _ = desk.call()
    a.take(("203.0.113.1", 61_000), packet(B_ID), 1.0)
    a.take(("203.0.113.66", 6_666), b"noise", 1.0)
    reply = desk.give({"command": "query", "call-id": "call"})
    assert (reply["created"], reply["created_us"]) == (1_700_000_000, 500_000)
    party = reply["tags"]["a"]
    (stream,) = party["medias"][0]["streams"]
    assert (party["in dialogue with"], stream["local port"]) == ("b", a.port)
    assert stream["endpoint"] == {"family": "IPv4", "address": "203.0.113.1", "port": 61_000}
    assert stream["advertised endpoint"]["address"] == "192.0.2.10"
    assert stream["stats"] == {"packets": 1, "bytes": 35, "errors": 1}
    assert (stream["figures"]["learnt"], stream["figures"]["unknown_source"]) == (1, 1)


@pytest.mark.parametrize(("limit", "listed"), [(None, 32), (2, 2), ("3", 3), (0, 0), (-1, 0), (10**18, 40), ("x", 32)])
def test_a_list_is_bounded(limit: object, listed: int) -> None:
    desk = Desk()
    for number in range(40):
        desk.offer(sdp(A_HOME), call=str(number))
    command = {"command": "list"} | ({} if limit is None else {"limit": limit})
    assert desk.give(command)["calls"] == [str(number) for number in range(listed)]


def test_statistics_outlive_their_calls() -> None:
    desk = Desk()
    a, _ = desk.call()
    a.take(A_HOME, b"12345", 1.0)
    desk.delete()
    desk.call()[0].take(A_HOME, b"123", 1.0)
    said = desk.give({"command": "statistics"})["statistics"]
    assert (said["calls"], said["ports"], said["counters"]["calls"]) == (1, 2, 2)
    assert (said["streams"]["datagrams"], said["streams"]["bytes"]) == (2, 8)


def test_datagrams_may_go_by_step_as_well() -> None:
    desk = Desk()
    a, b = desk.call()
    given = DatagramReceived(f"UDP {a.port}", A_HOME, b"x")
    assert desk.relay.step([given], 1.0) == [SendDatagram(f"UDP {b.port}", B_HOME, b"x")]
    assert desk.relay.step([DatagramReceived("UDP 1", A_HOME, b"x")], 1.0) == []
