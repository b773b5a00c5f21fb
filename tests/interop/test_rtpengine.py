"""rtpengine and our relay get the same commands, by the proxy's half of ``ng``, and do the same (SPEC X9)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.rtpengine import MISSING, PROGRAM, rtpengine
from tests.relay.desk import A_ID, B_ID, medium, packet, sdp
from tests.relay.process import Proxy, datagram_socket, place, relaying
from tests.relay.test_machine import REFUSALS
from wanderbus.relay import ng

pytestmark = [
    pytest.mark.interop(peer="rtpengine", scenario="the same commands, the same answers as of our relay"),
    pytest.mark.skipif(PROGRAM is None, reason=MISSING),
]

KINDS = ("ours", "rtpengine")


@pytest.fixture(scope="module")
def proxies() -> Iterator[dict[str, Proxy]]:
    """A proxy for each of the two relays."""
    with relaying() as (ours, _), rtpengine() as running:
        theirs = Proxy(running.ng)
        with theirs.socket:
            yield {"ours": ours, "rtpengine": theirs}


@pytest.mark.parametrize(("fields", "reason"), [each for each in REFUSALS if each[0].get("command") != ["offer"]])
def test_both_relays_refuse_impossible_commands(proxies: dict[str, Proxy], fields: dict[str, Any], reason: str) -> None:
    replies = [proxies[kind].give(fields) for kind in KINDS]
    assert replies[0] == replies[1] == {"result": "error", "error-reason": reason}


def test_a_deletion_of_nothing_is_answered_alike(proxies: dict[str, Proxy]) -> None:
    replies = [proxies[kind].give(ng.delete(call_id="nothing", from_tag="a")) for kind in KINDS]
    assert replies[0] == replies[1]


@pytest.mark.parametrize("data", [b"A d7:command4:pinge", b'B {"command":"ping"}', b"C foo", b"D l4:pinge"])
def test_the_same_datagrams_are_answered_alike(proxies: dict[str, Proxy], data: bytes) -> None:
    answers = []
    for kind in KINDS:
        proxies[kind].socket.send(data)
        answers.append(proxies[kind].socket.recv(65_536))
    assert answers[0] == answers[1] or json.loads(answers[0][2:]) == json.loads(answers[1][2:])


@pytest.mark.interop(scenario="our proxy's commands, a data channel", transport="UDP")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source_ip", ["", "127.0.0.1"])
def test_a_data_channel_passes(proxies: dict[str, Proxy], kind: str, source_ip: str) -> None:
    """With the address of the message, a useless one in SDP does no harm."""
    proxy = proxies[kind]
    said = "10.255.0.1" if source_ip else "127.0.0.1"
    tags = {"call_id": f"{kind} {source_ip}", "from_tag": "a"}
    with datagram_socket() as a, datagram_socket() as b:
        offer = sdp((said, place(a)[1]), A_ID)
        offered = proxy.give(ng.describe("offer", offer, source_ip=source_ip, **tags))
        answer = sdp((said, place(b)[1]), B_ID)
        answered = proxy.give(ng.describe("answer", answer, to_tag="b", source_ip=source_ip, **tags))
        to_b, to_a = medium(ng.outcome(answered)[0]), medium(ng.outcome(offered)[0])
        ids = [line for line in offer.splitlines() if line.startswith("a=wanderbus")]
        assert [line for line in ng.outcome(offered)[0].splitlines() if line.startswith("a=wanderbus")] == ids
        for size in (1, 200, 1_172):
            a.sendto(packet(B_ID, bytes(size)), ("127.0.0.1", to_b.port))
            assert b.recv(65_536) == packet(B_ID, bytes(size))
            b.sendto(packet(A_ID, bytes(size)), ("127.0.0.1", to_a.port))
            assert a.recv(65_536) == packet(A_ID, bytes(size))
        assert ng.outcome(proxy.give(ng.delete(**tags))) == ("", "")
