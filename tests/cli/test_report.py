"""``wanderbus report`` from the shell, over the log of a server (SPEC T-08)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.shell import WAIT_S, Shell
from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import report
from wanderbus.event import Event

START_US = 1_700_000_000_000_000
LIVE_S_MAX = 200.0


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of a server whose log has 20 events, one in a second."""
    records = [
        published(Event("Departure", {}), number=number, at_us=START_US + number * 1_000_000) for number in range(20)
    ]
    return write_records(tmp_path / "data" / "log", records).parent


@pytest.mark.spark
def test_t08_a_report_of_a_log_leaves_nothing_but_its_file(
    use_session: Callable[..., None], data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_session(report)
    page = tmp_path / "report.html"
    before = sorted(each.relative_to(data_dir) for each in data_dir.rglob("*"))
    arguments = ("--log", str(data_dir), "--from", "2023-11-14T22:13:30Z", "--to", "2023-11-14T22:13:35Z")
    assert run(["report", *arguments, "--json", "--out", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["records"], found["totals"]["events"], found["totals"]["generated"]) == (5, 5, 0)
    assert [row["subject"] for row in found["subjects"]["rows"]] == ["Departure"]
    assert "No event matched a subscription." in page.read_text()
    assert sorted(each.relative_to(data_dir) for each in data_dir.rglob("*")) == before, "no reader is registered"


@pytest.mark.spark
def test_t08_a_live_report_is_made_again_until_a_signal_ends_it(shell: Shell, data_dir: Path) -> None:
    path = shell.directory / "live.html"
    process = shell.start("report", "--log", str(data_dir), "--live", "--every", "1", "--out", str(path))
    deadline = time.monotonic() + LIVE_S_MAX
    seen: set[int] = set()
    while len(seen) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        if path.exists() and "http-equiv='refresh' content='1'" in path.read_text():
            seen.add(path.stat().st_ino)
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert out.startswith(f"{path}: 0 matches of 20 events, ")
    assert "http-equiv" not in path.read_text(), "a page that is complete does not reload itself"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give the events either with --lake or with --log"),
        (["--lake", "l", "--log", "d"], "give the events either with --lake or with --log"),
        (["--lake", "l"], "l has no lake yet; make it with 'wanderbus pipeline run'"),
        (["--log", "d"], "d is not a directory; give the data directory of a server"),
        (["--lake", "l", "--every", "3"], "--every is the pause between reports; give it with --live"),
        (["--lake", "l", "--from", "soon"], "--from: invalid time 'soon' (expected for example 2026-11-21T10:00:00Z"),
        (["--lake", "l", "--from", "2026-11-21T10:00:00"], "--from: the time 2026-11-21T10:00:00 has no time zone"),
        (["--lake", "l", "--from", "-2h", "--to", "-3h"], "--to: -3h is not after --from -2h; the period is empty"),
        (
            ["--log", "d", "--master", "spark://h:1"],
            "--log makes a lake on this machine, which a cluster does not see",
        ),
    ],
)
def test_t08_misuse_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", *arguments]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"wanderbus: {message}")
    assert not list(tmp_path.iterdir()), "nothing is written"
