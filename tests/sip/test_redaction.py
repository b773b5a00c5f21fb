"""Redaction: no password, key or digest value survives in a trace, in any spelling (SPEC U-06)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sip.trace_world import entry, moving_call, secrets_of, traced
from wanderbus.sip.message.message import parse_message
from wanderbus.sip.trace.hep import hep3
from wanderbus.sip.trace.ladder import difference, ladder
from wanderbus.sip.trace.ladder_svg import ladder_svg
from wanderbus.sip.trace.pcap import pcap
from wanderbus.sip.trace.redaction import redact
from wanderbus.sip.trace.trace_messages import traced_messages

SECRET = "5ecRe7-0f/a+pA55phra5e"

HEADS = [
    'Authorization: Digest username="alice", realm="x", nonce="{}", uri="sip:x", response="{}", cnonce="{}"',
    "authorization:Digest nonce={}",
    "AUTHORIZATION : Digest realm=x,\r\n\tnonce=\r\n   {}",
    'Proxy-Authorization: Digest realm="an open quote, nonce="{}"',
    "Proxy-Authorization: Basic {}",
    "Authorization: Bearer {}",
    "Authorization: {}",
    "Authorization: Digest {}",
    "Authorization: Digest realm=x nonce={}",
    'Authorization: Digest response="a\\"{}", password="{}"',
    'WWW-Authenticate: Digest realm="x", nonce="{}", opaque="{}", qop="auth"',
    'Proxy-Authenticate: Digest realm="x", nonce="{}", Digest realm="x", nonce="{}"',
    'Authentication-Info: nextnonce="{}", rspauth="{}", cnonce={}',
    "Proxy-Authentication-Info: nextnonce={}",
    "From: <sip:alice:{}@example.org>;tag=1",
    "To: sip:alice:{}@example.org",
    'Contact: "A" <sips:alice:{}@example.org>, <sip:bob:{}@[2001:db8::1]:5060;lr>',
    "Contact: sip:alice:with@{}@example.org,sip:bob:{}@example.org",
    "Contact: <sip:alice:with spaces {}@example.org>",
    "Call-Info: <https://alice:{}@example.org/alice.png>",
    'Authorization: Digest username="alice", uri="sip:alice:{}@example.org", nonce="x"',
    "Cookie: session={}; theme=dark",
    "Set-Cookie: session={}; Secure",
    "x-API-Key: {}",
    "X-ApiKey:{}",
    "X-Auth-Token : {}",
    "X-Client-Secret: a,\r\n {}",
    "X-Password: {}",
    "Refer-To: <sip:bob@example.org?Authorization=Digest%20{}&Subject=x>",
]
BODIES = [
    "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{}|2^20",
    "a=key-mgmt:mikey {}",
    "a=x-key:{}",
    "A=X-KEY-OF-THE-CHANNEL:{}",
    "a=ice-pwd:{}",
    "k=clear:{}",
    "a=crypto 1 AES {}",
    "u=http://alice:{}@example.org/",
    'Authorization: Digest nonce="{}"',
    "Cookie: {}",
]


def message(head: str = "Subject: x", body: str = "", ending: str = "\r\n") -> bytes:
    lines = ["INVITE sip:bob@example.org SIP/2.0", "Via: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK1", head, "Call-ID: a@b"]
    return (ending.join([*lines, "Content-Type: application/sdp", "", ""]) + body).encode()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("ending", ["\r\n", "\n"])
def test_header_fields(head: str, ending: str) -> None:
    shown = redact(message(head.replace("{}", SECRET), ending=ending))
    assert SECRET.encode() not in shown
    assert b"***" in shown
    assert shown.startswith(b"INVITE sip:bob@example.org SIP/2.0")
    assert shown.endswith(f"Call-ID: a@b{ending}Content-Type: application/sdp{ending}{ending}".encode())


@pytest.mark.parametrize("line", BODIES)
def test_bodies_keep_their_length(line: str) -> None:
    body = f"v=0\r\n{line.replace('{}', SECRET)}\r\na=sendrecv\r\n"
    before = message(body=body)
    shown = redact(before)
    assert SECRET.encode() not in shown
    assert len(shown) == len(before)
    assert shown.endswith(b"\r\na=sendrecv\r\n")


@pytest.mark.parametrize("line", [*HEADS, *BODIES])
def test_bytes_that_are_no_message(line: str) -> None:
    """Without an empty line the boundary between head and body is unknown."""
    assert SECRET.encode() not in redact(line.replace("{}", SECRET).encode() + b"\r\nmore")


def test_a_request_uri() -> None:
    assert (
        redact(b"INVITE sip:bob:hunter2@example.org SIP/2.0\r\n\r\n")
        == b"INVITE sip:bob:***@example.org SIP/2.0\r\n\r\n"
    )


@pytest.mark.parametrize("field", ["Content-Encoding: gzip", "e:gzip", "content-encoding:\r\n gzip"])
def test_a_compressed_body_is_hidden_as_a_whole(field: str) -> None:
    assert redact(message(field, "\x1f\x0b and so on")).endswith(b"\r\n\r\n" + b"*" * len("\x1f\x0b and so on"))


def test_text_without_secrets_stays() -> None:
    """A trace serves to find faults: everything except secrets stays as it was on the wire."""
    plain = message(
        "f: <sip:alice@example.org:5060>;tag=1\r\nContact: <sip:10.0.0.1:5060;lr>,\r\n  <sip:a@[::1]:5060>\r\nX: \xff",
        "v=0\r\nc=IN IP4 10.0.0.1\r\na=rudp-connection:1f00\r\na=fingerprint:sha-256 AB:CD\r\n\x00\xfe",
    )
    assert redact(plain) == plain
    challenge = b'WWW-Authenticate: Digest realm="x, y", stale=true, algorithm=SHA-256, qop="auth"'
    assert redact(challenge) == challenge
    credentials = redact(
        message('Authorization: Digest username="alice", nc=00000001, nonce="x", uri="sip:x"')
    ).decode()
    assert 'Authorization: Digest username="alice", nc=00000001, nonce=***, uri="sip:x"' in credentials


@given(st.binary(max_size=300), st.sampled_from([*HEADS, *BODIES]), st.binary(max_size=300))
def test_any_bytes_around_it(before: bytes, line: str, after: bytes) -> None:
    """Bytes before and after make no difference, and a second redaction changes nothing."""
    data = before + b"\r\n" + line.replace("{}", SECRET).encode() + b"\r\n" + after
    shown = redact(data)
    # A preceding header field may continue in the line; the line is then removed or hidden with it.
    assert SECRET.encode() not in shown
    assert redact(shown) == shown


@given(st.binary(max_size=1_000))
def test_any_bytes_at_all(data: bytes) -> None:
    shown = redact(data)
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "<sip:a:",
        "sip:a:b ",
        "sip:a:",
        "a-",
        "a=k",
        "\r\na=key",
        "\r\nAuthorization:",
        'Digest a="',
        "?authorization=",
        "\r\n ",
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    """64 KiB that begin like a secret and never end: some milliseconds, where a quadratic pattern needs minutes."""
    data = piece.encode() * (65_000 // len(piece))
    began = time.perf_counter()
    for head in (b"", b"\r\nAuthorization: Digest "):
        for tail in (b"", b"@x", b"\r\n\r\n@"):
            redact(head + data + tail)
    assert time.perf_counter() - began < 3.0


def test_redacted_messages_are_still_messages() -> None:
    for each in moving_call():
        before, after = parse_message(each.data), parse_message(redact(each.data))
        assert [name for name, _ in before.headers] == [name for name, _ in after.headers]
        assert (before.body, before.call_id, before.vias) == (after.body, after.call_id, after.vias)


def test_no_output_of_a_call_holds_a_digest_value() -> None:
    raw = moving_call()
    secrets = secrets_of(raw)
    assert len(secrets) > 6
    trace = traced(raw)
    found = traced_messages(trace)
    outputs = [
        repr(list(trace)).encode(),
        ladder(found, payloads=True).encode(),
        *(difference(found[0], each).encode() for each in found),
        ladder_svg(found).encode(),
        pcap(trace),
        *(hep3(each) for each in found),
    ]
    assert [secret for secret in secrets for output in outputs if secret in output] == []
    assert any(b"nonce=***" in output for output in outputs)


def test_a_trace_redacts_before_it_keeps() -> None:
    trace = traced([entry(message("From: <sip:alice:hunter2@example.org>"))])
    (kept,) = trace
    assert b"hunter2" not in kept.data
    assert "hunter2" not in repr(entry(b"hunter2"))
