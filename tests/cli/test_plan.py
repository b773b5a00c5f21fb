"""``wanderbus plan`` over a server's log (SPEC T-10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import plan
from wanderbus.event import Event
from wanderbus.planning import Activity, Plan, decode_plan
from wanderbus.records import Record, Subscribed
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.subscription import Subscription

START_US = 1_700_000_000_000_000
EVENTS = {"Departure": 30, "Arrival": 20, "Gate": 12, "Weather": 9, "Baggage": 9}


@pytest.fixture
def data(tmp_path: Path, use_session: Callable[..., None]) -> Path:
    """Return the data directory of a server; commands use the session of the tests."""
    subjects = [subject for subject, count in EVENTS.items() for _ in range(count)]
    subscription = Subscription("s", "sip:a@b", "s", "Departure", "Delay > 3")
    records: list[Record] = [Subscribed(at_us=START_US, subscription=subscription, number=1)]
    records += [published(Event(each, {}), number=number, at_us=START_US) for number, each in enumerate(subjects)]
    use_session(plan)
    return write_records(tmp_path / "data" / "log", records).parent


def plan_of(path: Path) -> Plan:
    return decode_plan(path.read_bytes(), path.name)


@pytest.mark.spark
def test_a_plan_places_every_subject_and_shows_its_load(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.json"
    assert run(["plan", "--log", str(data), "--servers", "2", "--out", str(out)]) == 0
    made = plan_of(out)
    assert made.subjects.keys() == EVENTS.keys()
    by_server = {number: sum(EVENTS[s] for s, p in made.subjects.items() if p.server == number) for number in (1, 2)}
    assert sorted(by_server.values()) == [39, 41], "30 and 9 or 12, of 80 events"
    printed = capsys.readouterr().out
    assert "interest: 1 subscriptions, 1 different filters, 1 not covered, 1 after merging" in printed
    assert "of that of a placement by hash" in printed
    assert "moves:" not in printed


@pytest.mark.spark
def test_a_plan_near_the_present_one_moves_little(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert run(["plan", "--log", str(data), "--servers", "2", "--out", str(first)]) == 0
    again = ["plan", "--log", str(data), "--present", str(first), "--out", str(second)]
    assert run([*again, "--servers", "2"]) == 0
    assert "moves: 0 subjects with 0.000 s of load" in capsys.readouterr().out
    assert plan_of(second).subjects == plan_of(first).subjects
    assert run([*again, "--servers", "3"]) == 0
    figures = plan_of(second).figures
    assert 1 <= figures.moved_subjects <= 3
    assert f"moves: {figures.moved_subjects} subjects" in capsys.readouterr().out


@pytest.mark.spark
def test_a_plan_as_json_is_the_file(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "plan.json"
    assert run(["plan", "--log", str(data), "--servers", "3", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_bytes())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "either with --lake or with --log"),
        (["--lake", "a", "--log", "b"], "either with --lake or with --log"),
        (["--lake", "a", "--present", "none.json"], "none.json cannot be read"),
        (["--lake", "a", "--from", "yesterday"], "--from: invalid time 'yesterday'"),
        (["--lake", "a", "--out", "none/plan.json"], "none/plan.json cannot be written"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--servers", "2", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_present_file_that_is_no_plan_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.json").write_text("{}")
    assert run(["plan", "--servers", "2", "--lake", "a", "--present", str(tmp_path / "plan.json")]) == 2
    assert "plan.json is not a plan" in capsys.readouterr().err


def test_t10_a_plan_for_a_domain_keeps_its_groups_whole_and_leaves_decentralised_channels_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = create_domain(tmp_path / "domain", "localhost", 3)
    file.write_text(f'{file.read_text("utf-8")}\n[channels.T0]\nmodel = "decentralised"\n', "utf-8")
    activities = {f"T{number}": Activity(events=number + 1) for number in range(200)}
    monkeypatch.setattr(plan, "_counts", lambda *_: (activities, {}))
    out = tmp_path / "plan.json"
    words = ["plan", "--lake", str(tmp_path), "--out", str(out)]
    assert run([*words, "--event-domain", str(file)]) == 0
    made, domain = plan_of(out), read_domain(file)
    assert "moves: " in capsys.readouterr().out
    assert made.subjects.keys() == activities.keys() - {"T0"}
    servers: dict[int, set[int]] = {}
    for subject, placed in made.subjects.items():
        channel = domain.channel(subject)
        servers.setdefault(channel.group, set()).add(placed.server)
        assert placed.moves_from in (None, int(channel.leader[1:]))
    assert all(len(several) == 1 for several in servers.values())
    assert run(words) == 2
    assert "give the number of servers, or --event-domain FILE" in capsys.readouterr().err
    assert run([*words, "--event-domain", str(file), "--servers", "2"]) == 2
    assert f"--servers: 3 servers of {file} lead channels, not 2" in capsys.readouterr().err
