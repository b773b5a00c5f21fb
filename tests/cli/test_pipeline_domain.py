"""Commands over the logs and the lake of a domain (SPEC T-03, T-04, decision 0095)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.log_files import write_records
from tests.spark.domain_logs import first_records, second_records
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import past_events, reconcile, report
from wanderbus.cli.pipeline import run as run_command
from wanderbus.cli.pipeline.lake_options import existing_logs
from wanderbus.errors import StorageError
from wanderbus.runtime.files.domain_file import create_domain, data_directory

Run = Callable[..., list[str]]


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    """The directory of a domain whose two servers have logs."""
    create_domain(tmp_path / "domain", "localhost", 2)
    for server, records in (("s1", first_records()), ("s2", second_records())):
        write_records(data_directory(tmp_path / "domain", server) / "log", records)
    return tmp_path / "domain"


def test_the_directory_of_a_domain_stands_for_its_servers(domain: Path, tmp_path: Path) -> None:
    logs = [domain / "data" / server / "log" for server in ("s1", "s2")]
    assert existing_logs([domain]) == logs
    assert existing_logs([log.parent for log in logs]) == logs
    with pytest.raises(StorageError, match=r"other is not a directory; give the data directory of a server"):
        existing_logs([domain, tmp_path / "other"])


def test_a_server_is_chosen_of_a_lake_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["history", "count", "", "--log", str(tmp_path), "--server", "s1"]) == 2
    assert "--server chooses a server of a lake; give it without --log" in capsys.readouterr().err


@pytest.mark.spark
def test_a_lake_of_a_domain_is_made_and_asked(
    use_session: Callable[..., None], domain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_session(past_events, reconcile, report, run_command)

    def lines(*words: str, status: int) -> list[str]:
        assert run([*words, "--lake", str(domain / "lake")]) == status
        output = capsys.readouterr()
        return (output.err if status else output.out).splitlines()

    def wanderbus(*words: str, status: int = 0) -> list[str]:
        if words[0] != "history":
            return lines(*words, status=status)
        found = lines(*words, "--no-spark", status=status)
        assert lines(*words, "--spark", status=status) == found
        return found

    added = json.loads(wanderbus("pipeline", "run", str(domain), "--once", "--json")[0])["added"]
    assert (added["records"]["rows"], added["events"]["rows"]) == (24, 5)
    assert wanderbus("pipeline", "run", str(domain), "--once") == ["the lake is up to date"]
    assert wanderbus("pipeline", "reconcile", str(domain)) == ["2 segments, 24 records, 0 segments differ"]
    shown = [json.loads(line) for line in wanderbus("pipeline", "status", str(domain), "--json")]
    assert [(each["log"], each["tables"][0]["offset"]) for each in shown] == [("s1-7", 9), ("s2-9", 15)]

    matches = wanderbus("history", "match", "", "--subject", "*")
    assert [line.split()[0] for line in matches] == ["s1:4", "s1:5", "s1:6", "s2:7", "s2:13"]
    (match,) = wanderbus("history", "match", "", "--server", "s2", "--from", "7", "--to", "8", "--json")
    assert (json.loads(match)["server"], json.loads(match)["offset"]) == ("s2", 7)
    assert wanderbus("history", "explain", "Value > 2", "--offset", "s2:7")[0].startswith("matches: ")
    assert (
        "give the offset with its server, as s1:7" in wanderbus("history", "explain", "", "--offset", "7", status=1)[-1]
    )
    assert "--from, --to: an offset needs --server" in wanderbus("history", "count", "", "--from", "7", status=2)[-1]
    assert [line.split()[0] for line in wanderbus("history", "replay", "s2-9-3")] == ["s2:6", "s2:8"]
    page = domain / "report.html"
    assert "4 matches of 5 events, 4 delivered" in wanderbus("report", "--out", str(page))[0]
    assert "report of s1, s2" in page.read_text()
    assert "no log of the server 's9'" in wanderbus("report", "--server", "s9", "--out", str(page), status=1)[-1]
