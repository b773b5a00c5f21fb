"""The verdict on a message, its fields, and ``wanderbus sip parse`` (RFC 3261 8.2, 10.3, 16.3; RFC 4475)."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from wanderbus.cli import sip as sip_command
from wanderbus.errors import ConfigurationError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message import checks
from wanderbus.sip.message.dissection import dissect
from wanderbus.sip.message.inspection import ElementRole, inspect
from wanderbus.sip.message.message import Request, Response, encode_message, parse_message

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"
FIELDS = (
    ("Via", "SIP/2.0/UDP 192.0.2.1;branch=z9hG4bKa"),
    ("Max-Forwards", "70"),
    ("From", "<sip:a@example.org>;tag=1"),
    ("To", "<sip:b@example.org>"),
    ("Call-ID", "c"),
)
ROLES = st.sampled_from([None, *ElementRole])


def request(method: str, *more: tuple[str, str], body: bytes = b"", uri: str = "sip:b@example.org") -> Request:
    return Request(method, uri, (*FIELDS, ("CSeq", f"1 {method}"), *more), body)


def parsed(arguments: list[str], data: bytes | None = None) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(sip_command.app, ["parse", *arguments], input=data)
    return done.exit_code, json.loads(done.stdout)


@given(st.binary(max_size=200), ROLES)
def test_any_bytes_get_a_verdict_and_fields(data: bytes, role: ElementRole | None) -> None:
    verdict = inspect(data, role)
    assert verdict.valid is (verdict.reason is None)
    assert msgspec.json.encode(dissect(data))


@given(st.sampled_from(sorted(CORPUS.glob("*.sip"))), st.integers(0, 600), st.binary(max_size=4), ROLES)
def test_damaged_messages_get_a_verdict_and_fields(path: Path, at: int, put: bytes, role: ElementRole | None) -> None:
    data = path.read_bytes()
    data = data[:at] + put + data[at + 2 :]
    assert inspect(data, role).role in ElementRole
    assert dissect(data).keys() == dissect(b"").keys()


def test_without_a_role_the_message_determines_it() -> None:
    assert inspect(encode_message(request("REGISTER"))).role is ElementRole.REGISTRAR
    assert inspect(encode_message(request("OPTIONS"))).role is ElementRole.UAS
    assert inspect(encode_message(request("REGISTER")).replace(b"Call-ID", b"X")).role is ElementRole.REGISTRAR
    assert inspect(b"").role is ElementRole.UAS


def test_a_status_needs_somebody_to_answer_rfc3261_8_2_6() -> None:
    wire = encode_message(request("OPTIONS")).replace(b"Max-Forwards: 70", b"Max-Forwards: 700")
    assert inspect(wire).status == 400
    assert inspect(wire.replace(b"Via: SIP", b"Via: HTTP")).status is None
    assert inspect(wire.replace(b"OPTIONS", b"ACK")).status is None
    assert inspect(wire + b"x" * SIP_MESSAGE_BYTES_MAX).status == 513


def test_refusals_carry_what_the_sender_needs_to_know() -> None:
    def headers(refusal: checks.Refusal | None) -> dict[str, str]:
        assert refusal is not None
        return dict(refusal.headers)

    assert headers(checks.unserved_method(request("INFO"), ("INVITE", "BYE"))) == {"Allow": "INVITE, BYE"}
    asking = request("INVITE", ("Require", "timer, path"))
    assert headers(checks.unsupported_extension(asking, "Require", ("Timer",))) == {"Unsupported": "path"}
    assert checks.unsupported_extension(asking, "Require", ("timer", "path")) is None
    typed = request("INVITE", ("Content-Type", "Text/Plain ; charset=x"), body=b"x")
    assert headers(checks.unsupported_body(typed, (checks.SDP_TYPE,))) == {"Accept": "application/sdp"}
    assert checks.unsupported_body(typed, ("text/plain",)) is None


def test_an_invite_with_a_body_of_no_type_is_refused_rfc3261_20_15() -> None:
    verdict = inspect(encode_message(request("INVITE", body=b"v=0")), ElementRole.UAS)
    assert (str(verdict), verdict.reason) == ("415", "Content-Type: no type cannot be read")


@pytest.mark.parametrize(("accept", "said"), [("*/*", "valid"), ("application/*;q=0.1", "valid"), ("", "406")])
def test_accept_may_have_wildcards_rfc3261_20_1(accept: str, said: str) -> None:
    assert str(inspect(encode_message(request("INVITE", ("Accept", accept))), ElementRole.UAS)) == said


@pytest.mark.parametrize("host", ["255.255.255.255", "224.0.1.75", "0.0.0.0", "[ff02::1]"])
def test_no_proxy_passes_a_response_on_to_many_rfc4475_3_3_10(host: str) -> None:
    second = ("Via", f"SIP/2.0/UDP {host};branch=z9hG4bKb")
    response = Response(200, "OK", (*FIELDS, ("CSeq", "1 INVITE"), second))
    assert str(inspect(encode_message(response), ElementRole.PROXY)) == "drop"
    honest = response.replacing("Via", "SIP/2.0/UDP h").with_header("Via", f"{second[1]};received=192.0.2.7")
    assert str(inspect(encode_message(honest), ElementRole.PROXY)) == "valid"


def test_warnings_name_what_is_put_up_with() -> None:
    old = request("OPTIONS", ("Date", "today")).without("Max-Forwards").replacing("Via", "SIP/2.0/UDP h;branch=z9hG4bK")
    verdict = inspect(encode_message(old.replacing("From", "<sip:a@example.org>")) + b"rest")
    assert verdict.valid
    assert [warning.split()[0] for warning in verdict.warnings] == ["Via:", "From:", "Max-Forwards", "Date:", "4"]
    fresh = request("OPTIONS", ("Date", "Sat, 13 Nov 2010 23:29:00 GMT"))
    assert inspect(encode_message(fresh)).warnings == ()


def test_fields_of_a_whole_message() -> None:
    wire = (CORPUS / "rfc3261-13-invite.sip").read_bytes()
    fields = dissect(wire)
    assert (fields["kind"], fields["method"], fields["uri"]) == ("request", "INVITE", "sip:otto@example.org")
    assert fields["via"] == [
        {"transport": "UDP", "host": "198.51.100.7", "port": 5062, "params": {"branch": "z9hG4bKm1r4.7"}}
    ]
    assert fields["from"] == {"display": None, "uri": "sip:mira@example.org", "tag": "m7x", "params": {"tag": "m7x"}}
    assert fields["body_length"] == len(parse_message(wire).body)
    assert ["Content-Length", str(fields["body_length"])] in fields["headers"]


def test_command_prints_the_verdict_and_the_fields() -> None:
    status, printed = parsed([str(CORPUS / "rfc4475-03-11-no-hops-left.sip"), "--as", "proxy"])
    assert (status, printed["valid"], printed["status"], printed["as"]) == (1, False, 483, "proxy")
    assert printed["reason"].startswith("Max-Forwards")
    assert (printed["kind"], printed["max_forwards"]) == ("request", 0)
    assert parsed([str(CORPUS / "rfc4475-03-11-no-hops-left.sip")])[0] == 0


def test_command_reads_bytes_of_any_kind_from_standard_input() -> None:
    status, printed = parsed(["-"], bytes(range(256)))
    assert (status, printed["valid"], printed["status"], printed["kind"]) == (1, False, None, None)


def test_command_needs_a_file_it_can_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            sip_command.parse(path)
    empty = tmp_path / "empty"
    empty.touch()
    assert parsed([str(empty)])[0] == 1


def test_command_reads_no_more_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = io.BytesIO(bytes(SIP_MESSAGE_BYTES_MAX * 3))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(endless))
    with pytest.raises(typer.Exit):
        sip_command.parse(Path("-"))
    assert endless.tell() == SIP_MESSAGE_BYTES_MAX + 1


def test_conformance_table_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "sip_conformance.py"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
