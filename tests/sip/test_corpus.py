"""The project's own corpus: messages, session descriptions and digest values written after the RFCs.

`corpus/index.toml` names for every file its origin, the expected result of each element, and the expected values.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest_values import Challenge, Credentials
from wanderbus.sip.message.dissection import dissect
from wanderbus.sip.message.inspection import ElementRole, inspect
from wanderbus.sip.message.message import encode_message, parse_message
from wanderbus.sip.message.sdp import SessionDescription

CORPUS: Final = Path(__file__).parent / "corpus"
CASES: Final[list[dict[str, str]]] = tomllib.loads((CORPUS / "index.toml").read_text(encoding="utf-8"))["case"]
MESSAGES: Final = [case for case in CASES if case["kind"] == "message"]
PARTS: Final = [case for case in CASES if case["kind"] != "message"]
READERS: Final[dict[str, Any]] = {
    "sdp": SessionDescription.parse,
    "challenge": lambda data: Challenge.parse(data.decode()),
    "credentials": lambda data: Credentials.parse(data.decode()),
}

by_file = pytest.mark.parametrize("case", MESSAGES, ids=[case["file"] for case in MESSAGES])
by_part = pytest.mark.parametrize("case", PARTS, ids=[case["file"] for case in PARTS])


def at(values: Any, path: str) -> Any:
    """The element of ``values`` at a path such as via.0.port."""
    for step in path.split("."):
        values = values[int(step)] if isinstance(values, list) else values[step]
    return values


def test_every_file_is_in_the_index_and_the_other_way_round() -> None:
    files = sorted(path.name for path in CORPUS.iterdir() if path.name != "index.toml")
    assert sorted(case["file"] for case in CASES) == files
    assert len(files) >= 60
    assert len({case["source"] for case in MESSAGES if case["source"].startswith("RFC 4475")}) == 24


@by_file
def test_each_element_handles_a_message_as_the_rfc_requires(case: dict[str, str]) -> None:
    data = (CORPUS / case["file"]).read_bytes()
    verdicts = {role: inspect(data, role) for role in ElementRole}
    assert {role: str(verdict) for role, verdict in verdicts.items()} == {role: case[role] for role in ElementRole}
    assert all((verdict.reason is None) == verdict.valid for verdict in verdicts.values())


@by_file
def test_a_message_has_its_apparent_fields(case: dict[str, str]) -> None:
    fields = dissect((CORPUS / case["file"]).read_bytes())
    wanted = json.loads(case.get("reads", "{}"))
    assert {path: at(fields, path) for path in wanted} == wanted
    msgspec.json.encode(fields)


@by_file
def test_a_message_that_can_be_read_comes_back(case: dict[str, str]) -> None:
    try:
        message = parse_message((CORPUS / case["file"]).read_bytes())
    except SIPParseError:
        assert not any(case[role].startswith("valid") for role in ElementRole)
        return
    assert parse_message(encode_message(message)) == message


@by_part
def test_a_part_of_a_message_is_read_or_refused(case: dict[str, str]) -> None:
    data = (CORPUS / case["file"]).read_bytes()
    read = READERS[case["kind"]]
    if case["expect"] == "refused":
        with pytest.raises(SIPParseError):
            read(data)
        return
    value = read(data)
    assert read(value.encode() if isinstance(value, SessionDescription) else str(value).encode()) == value
    fields = json.loads(msgspec.json.encode(value))
    wanted = json.loads(case.get("reads", "{}"))
    assert {path: at(fields, path) for path in wanted} == wanted
