"""The ng protocol: cookies, dictionaries in two notations, and the proxy's half."""

from __future__ import annotations

import json

import pytest

from wanderbus.errors import RemoteProtocolError
from wanderbus.relay import ng


def test_a_command_is_read() -> None:
    command = ng.read_command(b"12_3 d7:command4:ping5:flagsl13:trust addressee")
    assert (command.cookie, command.text("command"), command.json) == (b"12_3", "ping", False)
    assert command.words("flags") == ("trust-address",)


def test_json_is_read_and_answered_in_json() -> None:
    command = ng.read_command(b'7 {"command": "ping"}')
    assert (command.text("command"), command.json) == ("ping", True)
    cookie, space, body = ng.write_reply(command.cookie, {"result": "pong", "n": [1]}, json=True).partition(b" ")
    assert (cookie, space, json.loads(body)) == (b"7", b" ", {"result": "pong", "n": [1]})


@pytest.mark.parametrize("data", [b"", b"cookie", b" d7:command4:pinge", b"c" * 129 + b" de"])
def test_without_a_cookie_nothing_can_be_answered(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        ng.read_command(data)
    assert not isinstance(caught.value, ng.Unreadable)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"foo",
        b"l4:pinge",
        b"4:ping",
        b"{",
        b'{"a":' * 2_000,
        b'{"a":"\\ud800"}',
        b'{"\xff":1}',
        b"d7:command4:pingex",
    ],
)
def test_a_command_that_is_no_dictionary_gets_an_error(body: bytes) -> None:
    with pytest.raises(ng.Unreadable, match=ng.INVALID) as caught:
        ng.read_command(b"c " + body)
    assert caught.value.cookie == b"c"


def test_values_of_other_types_are_none() -> None:
    command = ng.read_command(b"c d5:flags3:all8:from-tagi1e7:replacelli1eee2:tol1:xee")
    assert (command.text("from-tag"), command.words("flags"), command.words("replace")) == ("", (), ())


def test_invalid_utf8_passes_bencoding_and_is_marked_in_json() -> None:
    command = ng.read_command(b"c d7:call-id2:\xff\xfee")
    assert ng.write_reply(b"c", command.fields).endswith(b"2:\xff\xfee")
    assert json.loads(ng.write_reply(b"c", command.fields, json=True)[2:]) == {"call-id": "\ufffd\ufffd"}


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        ({"result": "ok", "sdp": "v=0"}, ("v=0", "")),
        ({"result": "pong"}, ("", "")),
        ({"result": "error", "error-reason": "Unknown call-id"}, ("", "Unknown call-id")),
        ({"result": "load limit", "message": "Parallel session limit reached"}, ("", "Parallel session limit reached")),
        ({}, ("", "the relay gave no result")),
    ],
)
def test_outcomes(reply: dict[str, str], outcome: tuple[str, str]) -> None:
    assert ng.outcome(reply) == outcome
    assert ng.read_reply(ng.write_reply(b"c", reply)) == (b"c", reply)


def test_commands_have_only_known_fields() -> None:
    assert ng.delete(call_id="x", from_tag="a") == {"command": "delete", "call-id": "x", "from-tag": "a"}
    offer = ng.describe("offer", "v=0", call_id="x", from_tag="a", source_ip="2001:db8::1", flags=("ICE=remove",))
    assert offer["received-from"] == ["IP6", "2001:db8::1"]
    assert offer["flags"] == ["SIP-source-address", "media-handover", "ICE=remove"]
    assert "to-tag" not in offer
    trusting = ng.describe("answer", "v=0", call_id="x", from_tag="a", to_tag="b", via_branch="z")
    assert (trusting["flags"][0], trusting["to-tag"], trusting["via-branch"]) == ("trust-address", "b", "z")
    assert "received-from" not in trusting
