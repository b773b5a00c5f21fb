"""Proofs of the home proxy that its user calls a service of another domain (SPEC D-13; decision 0174)."""

from __future__ import annotations

import pytest

from wanderbus.sip.message.headers import VISIT
from wanderbus.sip.message.message import Request, parse_message
from wanderbus.sip.proxy.visit_proofs import VisitProof, is_proved, read_proof, with_visit

KEY = b"k" * 32
CAROL = "sip:carol@a.example"


def call(*fields: str, method: str = "INVITE", tag: str = "", body: str = "a=wanderbus-session:default\r\n") -> Request:
    """Return the request of carol that begins or updates a call."""
    lines = [
        f"{method} sip:broker@b.example SIP/2.0",
        "Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1",
        "Max-Forwards: 70",
        f"From: <{CAROL}>;tag=1",
        f"To: <sip:broker@b.example>{tag}",
        "Call-ID: c1",
        f"CSeq: 1 {method}",
        *fields,
        f"Content-Length: {len(body)}",
        "",
        body,
    ]
    found = parse_message("\r\n".join(lines).encode())
    assert isinstance(found, Request)
    return found


def signed(request: Request) -> VisitProof | None:
    return read_proof(" ".join(with_visit(request, KEY, CAROL, "b.example", 1_000).headers_all(VISIT)))


def test_d13_a_call_is_proved_for_its_user_domain_and_session() -> None:
    proof = signed(call())
    assert proof is not None
    assert proof.at_s == 1_000
    assert is_proved(proof, KEY, CAROL, "b.example", "c1", "default")
    assert not is_proved(proof, KEY, CAROL, "b.example", "c1", "other")
    assert not is_proved(proof, KEY, CAROL, "c.example", "c1", "default")


def test_d13_a_proof_that_the_caller_has_written_is_replaced() -> None:
    forged = f"{VISIT}: 1000 {'0' * 64}"
    proof = signed(call(forged))
    assert proof is not None
    assert is_proved(proof, KEY, CAROL, "b.example", "c1", "default")
    assert signed(call(forged, body="v=0\r\n")) is None


@pytest.mark.parametrize(
    "request_", [call(method="MESSAGE"), call(tag=";tag=2"), call(body="v=0\r\n"), call(body="a=wanderbus-session:\n")]
)
def test_d13_only_a_call_that_begins_and_names_its_session_is_proved(request_: Request) -> None:
    assert signed(request_) is None


@pytest.mark.parametrize(
    "value",
    [
        "",
        "1000",
        "x " + "0" * 64,
        "1000 " + "0" * 63,
        "1000 " + "g" * 64,
        "1" * 13 + " " + "0" * 64,
        " ".join(["1000 " + "0" * 64] * 2),
    ],
)
def test_a_proof_that_cannot_be_read_is_none(value: str) -> None:
    assert read_proof(value) is None
