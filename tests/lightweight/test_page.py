"""docs/lightweight.md: its example is what the code sends and reads (SPEC P-02)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from tests.lightweight.light_town import LightDevice, LightServer
from wanderbus import protocol
from wanderbus.access import light_frames as wire
from wanderbus.lightweight.messagepack import unpack
from wanderbus.lightweight.records import hmac_sha256

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lightweight.md").read_text(encoding="utf-8")
EXAMPLE = PAGE[PAGE.index("### Example") :]
FRAMES = {
    name: bytes.fromhex(text)
    for name, text in re.findall(r"^([A-Za-z]+)\n((?:    [0-9a-f ]+\n)+)", EXAMPLE, re.MULTILINE)
}
FROM_CLIENT = {"HELLO", "PROOF", "Attach", "Subscribe", "Publish", "NotifyAck", "GRANT", "PING", "PONG"}
KINDS = {name: getattr(wire, name, wire.MESSAGE) for name in FRAMES}


@pytest.mark.parametrize("name", FRAMES)
def test_the_frame_of_the_example(name: str) -> None:
    frame = FRAMES[name]
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame[4] == KINDS[name]
    if name in FROM_CLIENT:
        reader = wire.FrameReader()
        reader.message_bytes_max = 65_536
        assert list(reader.frames(frame)) == [(frame[4], frame[5:])]


def test_all_kinds_are_in_the_example() -> None:
    assert {frame[4] for frame in FRAMES.values()} == set(range(1, 10))


def test_the_messages_of_the_example() -> None:
    assert wire.decode_hello(FRAMES["HELLO"][5:])[:5] == (16_384, "alice", "meter", "default", "")
    for name, frame in FRAMES.items():
        if frame[4] == wire.MESSAGE:
            decode = protocol.decode_from_agent if name in FROM_CLIENT else protocol.decode_from_broker
            assert type(decode(frame[5:])).__name__ == name
            assert isinstance(unpack(frame[5:]), list)


def test_the_proofs_of_the_example() -> None:
    secret = hashlib.sha256(b"alice:example.org:secret").hexdigest()
    assert secret in EXAMPLE
    signed = FRAMES["CHALLENGE"][5:21], bytes(range(32)), FRAMES["HELLO"][5:]
    assert FRAMES["PROOF"][5:] == wire.client_proof(secret, *signed)
    assert FRAMES["WELCOME"][5:37] == wire.server_proof(secret, *signed)
    assert FRAMES["PROOF"][5:] == hmac_sha256(secret.encode(), b"wanderbus light client 1" + b"".join(signed))


def test_the_client_sends_messages_as_the_page_describes_them() -> None:
    """Every message of a client has the length that the page gives it."""
    device = LightDevice(LightServer(), "alice")
    device.want("Trade", "N > 0")
    device.connect()
    for _ in range(2):
        device.move()
    device.publish(1)
    assert device.wire is not None
    sent = bytes(device.wire.to_server)
    lengths = {}
    while sent:
        size = 4 + int.from_bytes(sent[:4], "big")
        if sent[4] == wire.MESSAGE:
            message = unpack(sent[5:size])
            lengths[message[0]] = len(message)
        sent = sent[size:]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", PAGE[: PAGE.index("| kind | from server")], re.MULTILINE)
    described = {
        int(kind): 1 + len(re.sub(r"\[[^]]*\]|`[^`]*`|\([^)]*\)", "", items).split(";")) for kind, _, items in rows
    }
    assert lengths
    assert lengths == {kind: described[kind] for kind in lengths}
