"""``wanderbus pipeline`` from the shell, over the log of a server (SPEC T-03)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.pipeline_jobs import WAIT_S, offset, wait_for
from tests.cli.shell import Shell
from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import backfill, compact, reconcile
from wanderbus.cli.pipeline import run as run_command
from wanderbus.event import Event
from wanderbus.pipeline.operation.lake_lock import lake_lock

START_US = 1_700_000_000_000_000


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of a server whose log has 20 events in two segments."""
    records = [
        published(
            Event("Departure", {"Delay": number if number % 2 else number + 0.5, "Dest": "IAH", "Codes": [1, "a"]}),
            number=number,
            at_us=START_US,
        )
        for number in range(20)
    ]
    return write_records(tmp_path / "data" / "log", records, per_segment=10).parent


@pytest.mark.spark
def test_a_signal_ends_a_run_between_batches(shell: Shell, data_dir: Path) -> None:
    lake = str(shell.directory / "lake")
    job = shell.start("pipeline", "run", str(data_dir), "--lake", lake, "--every", "0.5", "--rows-per-batch", "8")
    wait_for(lambda: offset(Path(lake)) == 20, job)
    assert run(["pipeline", "compact", "--lake", lake]) == 1
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=WAIT_S)
    assert (job.returncode, "events: 20 rows added" in out) == (0, True), err
    assert "SIGTERM: ending after the present batch" in err
    assert "records/s, " in err
    assert "Traceback" not in err


@pytest.mark.spark
def test_a_lake_is_made_shown_and_kept(
    use_session: Callable[..., None], data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_session(backfill, compact, reconcile, run_command)
    lake = str(data_dir / "lake")

    def wanderbus(*words: str, status: int = 0) -> str:
        assert run([*words, "--lake", lake]) == status
        output = capsys.readouterr()
        return output.err if status else output.out

    log = str(data_dir)
    assert "has no lake yet; make it with 'wanderbus pipeline run'" in wanderbus("pipeline", "status", log, status=1)
    out = wanderbus("pipeline", "run", log, "--once", "--json")
    assert json.loads(out)["added"]["events"]["rows"] == 20
    assert wanderbus("pipeline", "run", log, "--once") == "the lake is up to date\n"

    found = json.loads(wanderbus("pipeline", "status", log, "--json"))
    assert {each["name"]: each["rows"] for each in found["tables"]}["records"] == 20
    assert [each["lag"] for each in found["tables"] if each["name"] == "events"] == [0]
    assert (found["last_run"]["state"], found["readers"][0]["offset"]) == ("COMPLETE", 20)
    assert "last run: run, began " in wanderbus("pipeline", "status", log)

    assert wanderbus("pipeline", "reconcile", log) == "2 segments, 20 records, 0 segments differ\n"
    assert wanderbus("pipeline", "compact", "events") == "events: 2 files became 1\n"
    assert wanderbus("pipeline", "backfill", "deliveries").endswith("the same as before; nothing to swap\n")
    assert "only silver tables" in wanderbus("pipeline", "backfill", "records", status=2)
    assert json.loads(wanderbus("pipeline", "vacuum", "--json"))["events"] == 0
    assert "24" in wanderbus("pipeline", "vacuum", "--hours", "1", status=2)

    heading, _, *rows, advice = wanderbus("schema", "infer", "Departure").splitlines()
    assert heading == "Departure: 20 events"
    expected = [["Delay", "Double", "0"], ["Dest", "String", "0"], ["Codes", "none", "fits", "20"]]
    assert [row.split() for row in rows] == expected
    assert advice.endswith("wanderbus schema set Departure Delay:Double Dest:String")
    assert "has no events of the subject 'Arrival'" in wanderbus("schema", "infer", "Arrival", status=1)
    with lake_lock(Path(lake)):
        error = wanderbus("pipeline", "run", log, "--once", status=1)
    assert f"another job (process {os.getpid()}) changes {lake}; end it first" in error
    assert len(error.splitlines()) == 1


def test_wrong_options_are_refused(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "run", str(data_dir), "--lake", "lake", "--once", "--every", "1"]) == 2
    assert "give it without --every" in capsys.readouterr().err
    assert run(["pipeline", "run", str(data_dir / "none"), "--lake", "lake", "--once"]) == 1
    assert "none is not a directory; give the data directory of a server" in capsys.readouterr().err
    (data_dir / "empty").mkdir()
    assert run(["pipeline", "run", str(data_dir / "empty"), "--lake", "lake", "--once"]) == 1
    assert (
        "empty holds no event log that a server has opened; give a server's data directory" in capsys.readouterr().err
    )
