"""``wanderbus filter``: output and exit status of each command."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from wanderbus import filters
from wanderbus.cli.application import run
from wanderbus.filters import xml

PUBLISHED = "(Stock == PETR4) and (Price < 25)"


class Said(NamedTuple):
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Command:
    """Runs ``wanderbus filter`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> Said:
        data = stdin if isinstance(stdin, bytes) else stdin.encode()
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = run(["filter", *arguments])
        return Said(status, *self._capsys.readouterr())


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


# check ---------------------------------------------------------------------------------------------------------------


def test_check_prints_the_canonical_text(command: Command) -> None:
    assert command("check", PUBLISHED) == (0, 'Stock == "PETR4" and Price < 25\n', "")


def test_check_reads_a_file_and_standard_input(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "filter"
    file.write_text(PUBLISHED + "\n")
    expected = command("check", PUBLISHED)
    assert command("check", "--file", str(file)) == expected
    assert command("check", "--file", "-", stdin=PUBLISHED) == expected


def test_check_points_at_the_fault(command: Command) -> None:
    message = "'=' is not a comparison; write '==' at character 8"
    pointed = f"wanderbus: {message}\n  (Stock = PETR4)\n         ^\n"
    assert command("check", "(Stock = PETR4)") == (2, "", pointed)
    said = command("check", "(Stock = PETR4)", "--json")
    assert (said.status, said.out) == (2, "")
    assert json.loads(said.err) == {"error": {"type": "FilterError", "message": message, "position": 7}}


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("eci", PUBLISHED),
        ("cesql", "LENGTH(name) = 3"),
        ("xml", xml.write(filters.parse(PUBLISHED).root)),
    ],
)
def test_check_in_every_language(command: Command, language: str, text: str) -> None:
    said = command("check", text, "--language", language, "--json")
    assert said.status == 0
    assert said.json["language"] == language
    root = filters.parse(text, language).root
    assert filters.parse(said.json["eci"]).root == root
    assert xml.read(said.json["xml"]) == root
    assert command("check", text, "--language", language, "--xml").out == said.json["xml"] + "\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "reason"),
    [
        ([], "", "either as an argument or with --file"),
        (["a == 1", "--file", "-"], "", "either as an argument or with --file"),
        (["--file", "missing"], "", "missing cannot be read: No such file"),
        (["--file", "-"], b"\xff", "standard input cannot be read: it is not UTF-8 text"),
        (["a == 1", "--language", "sql"], "", "sql"),
        (["<filter/>", "--language", "xml"], "", "<filter> is not in the namespace urn:wanderbus:1 at character 1"),
    ],
)
def test_check_refuses(command: Command, arguments: list[str], stdin: str | bytes, reason: str) -> None:
    said = command("check", *arguments, stdin=stdin)
    assert said.status == 2
    assert reason in said.err


# normal --------------------------------------------------------------------------------------------------------------


def test_normal_prints_a_line_for_each_conjunction(command: Command) -> None:
    said = command("normal", "Stock == PETR4 and (Price < 25 or Volume > 100)")
    assert said.status == 0
    lines = said.out.splitlines()
    assert len(lines) == 2
    either = " or ".join(f"({line})" for line in lines)
    assert command("match", either, '{"Stock": "PETR4", "Volume": 101}').status == 0
    assert command("match", either, '{"Stock": "PETR4", "Volume": 100}').status == 1


def test_normal_of_nothing_and_everything(command: Command) -> None:
    assert command("normal", "a == 1 and nothing").out == "nothing\n"
    assert command("normal", "").out == "everything\n"
    assert command("normal", "nothing", "--json").json == {"conjunctions": []}


def test_normal_in_json(command: Command) -> None:
    (conjunction,) = command("normal", "a > 1 and a < +inf and b suffix c", "--json").json["conjunctions"]
    assert conjunction["residuals"] == []
    assert [asked["attribute"] for asked in conjunction["filters"]] == ["a", "b"]
    (term,) = conjunction["filters"][0]["terms"]
    assert term["kind"] == "number"
    assert term["region"] == [{"low": 1, "high": {"Double": "INF"}, "low_open": True, "high_open": True}]
    assert conjunction["filters"][1]["terms"][0]["patterns"] == [{"operator": "suffix", "text": "c", "wanted": True}]


# match and explain ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "truth", "status"),
    [
        ({"Stock": "PETR4", "Price": 24}, "true", 0),
        ({"Stock": "PETR4", "Price": 25}, "false", 1),
        ({"Stock": "PETR4"}, "unknown", 1),
        ({"subject": "StockExchange", "attributes": {"Stock": "PETR4", "Price": 24.5}}, "true", 0),
    ],
)
def test_match(command: Command, event: dict[str, Any], truth: str, status: int) -> None:
    assert command("match", PUBLISHED, json.dumps(event)) == (status, truth + "\n", "")
    said = command("match", PUBLISHED, json.dumps(event), "--json")
    assert said.status == status
    assert said.json == {"truth": {"true": True, "false": False, "unknown": None}[truth]}


def test_match_of_a_cloudevent(command: Command) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "sold", "data": {"price": 24}}
    assert command("match", "type == sold and data.price < 25", json.dumps(event)).status == 0
    assert command("match", "source = '/s' AND type LIKE 's%'", json.dumps(event), "--language", "cesql").status == 0


def test_match_of_dates(command: Command) -> None:
    event = json.dumps({"at": {"Date": "2026-11-21T12:00:00+02:00"}})
    assert command("match", "at == 2026-11-21T10:00:00Z", event).status == 0


def test_match_from_files(command: Command, tmp_path: Path) -> None:
    filter, event = tmp_path / "filter", tmp_path / "event"
    filter.write_text(PUBLISHED)
    event.write_text('{"Stock": "PETR4", "Price": 24}\n')
    assert command("match", "--file", str(filter), "--event-file", str(event)).status == 0
    assert command("match", "--file", str(filter), event.read_text()).status == 0
    assert command("match", PUBLISHED, "--event-file", str(event)).status == 0
    assert command("match", PUBLISHED, "--event-file", "-", stdin=event.read_text()).status == 0


@pytest.mark.parametrize("name", ["match", "explain"])
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a == 1"], "give a filter and an event"),
        (["a == 1", "{}", "{}"], "give a filter and an event"),
        (["--file", "-", "--event-file", "-"], "standard input can be the filter or the event, not both"),
        (["a ==", "{}"], "at character 5"),
        (["a == 1", "[]"], "the event is not a JSON object"),
        (["a == 1", "{"], "the event is not a JSON object"),
        (["a == 1", '{"a":' * 10_000], "the event is not a JSON object"),
        (["a == 1", '{"a": null}'], "attribute 'a' has the type NoneType"),
        (["a == 1", '{"subject": 1, "attributes": {}}'], "the subject of the event must be a string"),
        (["a == 1", '{"specversion": "1.0"}'], "a CloudEvent needs 'id'"),
    ],
)
def test_faults_of_events(command: Command, name: str, arguments: list[str], reason: str) -> None:
    said = command(name, *arguments)
    assert said.status == 2
    assert reason in said.err
    assert said.out == ""


def test_explain(command: Command) -> None:
    event = '{"Stock": "PETR4", "Price": 30}'
    assert command("explain", PUBLISHED, event) == (1, "false\n  Price < 25 is false: Price is 30\n", "")
    said = command("explain", PUBLISHED, event, "--json")
    assert said.status == 1
    assert said.json["truth"] is False
    (decided,) = said.json["deciding"]
    assert (decided["question"], decided["truth"], decided["attribute"], decided["value"]) == (
        "Price < 25",
        False,
        "Price",
        30,
    )
    assert command("explain", "Price < 25", "{}").out.splitlines()[0] == "unknown"
    assert command("explain", "exists a", '{"a": {"Double": "INF"}}', "--json").json["deciding"][0]["value"] == {
        "Double": "INF"
    }


# covers and merge ----------------------------------------------------------------------------------------------------


def test_covers(command: Command) -> None:
    assert command("covers", "Price < 30", PUBLISHED) == (0, "true\n", "")
    said = command("covers", PUBLISHED, "Price < 30")
    assert said.status == 1
    word, event = said.out.splitlines()
    assert word == "false"
    assert command("match", "Price < 30", event).status == 0
    assert command("match", PUBLISHED, event).status == 1


def test_covers_in_json_and_from_a_file(command: Command) -> None:
    said = command("covers", "--file", "-", "--json", stdin="a < 5\n\na < 6\n")
    assert said.status == 1
    assert said.json["covers"] is False
    assert 5 <= said.json["counterexample"]["a"] < 6
    assert command("covers", "a < 6", "a < 5", "--json").json == {"covers": True, "counterexample": None}


def test_covers_needs_two(command: Command) -> None:
    said = command("covers", "a == 1")
    assert said.status == 2
    assert "give two filters, not 1" in said.err


def test_merge(command: Command) -> None:
    said = command("merge", "Stock == PETR4 and Price < 25", "Stock == VALE5 and Price < 25")
    assert said.status == 0
    (line,) = said.out.splitlines()
    for stock, truth in (("PETR4", 0), ("VALE5", 0), ("OTHER", 1)):
        assert command("match", line, json.dumps({"Stock": stock, "Price": 24})).status == truth


def test_merge_of_a_file_and_its_modes(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "filters"
    file.write_text("a == 1 and b == 1\na == 2 and b == 2\n\n")
    assert len(command("merge", "--file", str(file)).out.splitlines()) == 2
    assert len(command("merge", "--file", str(file), "--mode", "imperfect").out.splitlines()) == 1
    strict = command("merge", "--file", str(file), "--mode", "adaptive", "--precision-min", "1", "--json").json
    assert (strict["given"], len(strict["merged"])) == (2, 2)
    loose = command("merge", "--file", str(file), "--mode", "adaptive", "--precision-min", "0", "--json").json
    assert (loose["mode"], len(loose["merged"])) == ("adaptive", 1)


def test_a_fault_in_a_file_of_filters_is_found(command: Command) -> None:
    said = command("merge", "--file", "-", stdin="a == 1\n\na = 2\n")
    assert said.status == 2
    assert said.err == (
        "wanderbus: standard input, line 3: '=' is not a comparison; write '==' at character 3\n  a = 2\n    ^\n"
    )


@pytest.mark.parametrize("arguments", [["--mode", "other"], ["--precision-min", "2"]])
def test_merge_refuses(command: Command, arguments: list[str]) -> None:
    assert command("merge", "a == 1", *arguments).status == 2
