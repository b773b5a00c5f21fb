"""Schemas of subjects from the shell (SPEC T-03)."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.cli.shell import Shell, one_line
from tests.published import published
from wanderbus.event import Event
from wanderbus.records import encode_record

pytestmark = pytest.mark.integration

ROLES = '[broker.roles]\n"sip:olga@localhost" = "operator"\n"sip:adam@localhost" = "administrator"\n'


@pytest.fixture
def office(shell: Shell) -> Shell:
    """A server with an operator and an administrator."""
    shell.write_users("alice:secret\nolga:secret\nadam:secret\n")
    (shell.directory / "roles.toml").write_text(ROLES)
    shell.up("--config", "roles.toml")
    return shell


def schema(shell: Shell, *words: str, name: str = "olga") -> tuple[int, str, str]:
    user = ["--user", f"sip:{name}@localhost", "--password", "secret", "--server", f"127.0.0.1:{shell.port}"]
    return shell.run("schema", *words, *user)


def test_t03_a_schema_is_set_shown_and_widened(office: Shell) -> None:
    assert schema(office, "list") == (0, "No subject has a schema.\n", "")
    first = ["set", "Departure", "Dest:String", "DepDelay:integer=min", "--meaning", "DepDelay=after the plan"]
    assert schema(office, *first, name="adam") == (0, "Departure version 1\n", "")
    assert schema(office, *first, name="adam") == (0, "Departure version 1\n", "")
    second = ["set", "Departure", "Dest:String", "DepDelay:Double", "at:noon:Date", "--json"]
    status, out, err = schema(office, *second, name="adam")
    assert (status, err) == (0, "")
    declared = json.loads(out)
    assert (declared["version"], declared["by"]) == (2, "sip:adam@localhost")
    assert declared["attributes"] == [
        {"name": "Dest", "type": "String", "unit": None, "meaning": None},
        {"name": "DepDelay", "type": "Double", "unit": "min", "meaning": "after the plan"},
        {"name": "at:noon", "type": "Date", "unit": None, "meaning": None},
    ]
    status, out, err = schema(office, "show", "Departure")
    assert (status, err) == (0, "")
    heading, *rows = out.splitlines()
    assert heading.startswith("Departure version 2, since ")
    assert heading.endswith(" by adam@localhost")
    assert [row.split(maxsplit=3) for row in rows] == [
        ["name", "type", "unit", "meaning"],
        ["Dest", "String"],
        ["DepDelay", "Double", "min", "after the plan"],
        ["at:noon", "Date"],
    ]
    status, out, _ = schema(office, "show", "Departure", "--version", "1", "--json")
    assert (status, [each["type"] for each in json.loads(out)["attributes"]]) == (0, ["String", "Integer"])
    assert schema(office, "list")[1].splitlines()[1].split()[:3] == ["Departure", "2", "3"]
    assert len(schema(office, "list", "--versions", "--json")[1].splitlines()) == 2


ERRORS = [
    (["set", "Trade", "N:Integer"], "olga", 1, "need the role 'administrator'"),
    (["list"], "alice", 1, "need the role 'operator' or 'administrator'"),
    (["show", "Trade"], "olga", 1, "no schema of 'Trade'"),
    (["show", "--version", "1"], "olga", 2, "--version needs a subject"),
    (["set", "Trade", "N"], "adam", 2, "expected NAME:TYPE"),
    (["set", "Trade", "N:long"], "adam", 2, "types are Boolean, Date, Double, Integer, String"),
    (["set", "Trade", "N:Integer", "--meaning", "M=x"], "adam", 2, "invalid --meaning 'M=x'"),
    (["set", "Trade", "N:Integer", "N:Integer"], "adam", 1, "'N' is declared twice"),
]


def test_errors_are_one_line(office: Shell) -> None:
    for words, name, status, complaint in ERRORS:
        found, out, err = schema(office, *words, name=name)
        assert (found, out) == (status, "")
        assert complaint in one_line(err)


def test_t03_narrowing_is_refused_and_a_restart_keeps_every_version(office: Shell) -> None:
    for words in (["N:Integer"], ["N:Double"]):
        assert schema(office, "set", "Trade", *words, name="adam")[0] == 0
    office.kill()
    office.up("--config", "roles.toml")
    status, out, err = schema(office, "set", "Trade", "N:Integer", name="adam")
    assert (status, out) == (1, "")
    assert "the attribute 'N' is Double and cannot become Integer" in one_line(err)
    status, out, err = schema(office, "show", "Trade", "--version", "3")
    assert (status, out) == (1, "")
    assert "the newest version of the schema of 'Trade' is 2" in one_line(err)
    rows = schema(office, "list", "--versions", "--json")[1].splitlines()
    assert [json.loads(row)["version"] for row in rows] == [1, 2]


def test_an_inferred_schema_is_declared(office: Shell) -> None:
    events = [Event("Trade", {"n": number / 2 if number % 2 else number}) for number in range(4)]
    records = [encode_record(published(event, number=number)) for number, event in enumerate(events)]
    columns = {"kind": ["published"] * 4, "subject": ["Trade"] * 4, "record": records, "date": ["2023-11-14"] * 4}
    write_deltalake(office.directory / "lake" / "bronze" / "records", pa.table(columns), partition_by=["date"])
    assert schema(office, "set", "Trade", "n:Integer=EUR", name="adam")[0] == 0
    words = ["infer", "Trade", "--lake", str(office.directory / "lake"), "--set", "--json"]
    status, out, _ = schema(office, *words, name="adam")
    assert status == 0
    found = json.loads(out)
    assert (found["version"], found["observed"]) == (2, {"n": {"Integer": 2, "Double": 2}})
    assert found["attributes"] == [{"name": "n", "type": "Double", "unit": "EUR", "meaning": None}]
    assert found["unfitting"] == {}
