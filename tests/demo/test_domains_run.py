"""The demonstration with several domains: sessions move, one is cut off, nothing is lost (SPEC L-01, M-01, S-01)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo import __main__ as command
from demo.airlines import AIRLINES, SERVICES

RUN_S_MAX = 300.0


@pytest.mark.integration
def test_l01_s01_travellers_of_three_domains_take_their_sessions_along_and_miss_nothing_while_one_is_cut_off(
    tmp_path: Path,
) -> None:
    result = tmp_path / "result.json"
    files = ["--json", str(result), "--report", str(tmp_path / "report.html")]
    options = ["--domains", "--rows", "600", "--rate", "60", *files]
    ran = subprocess.run([sys.executable, "-m", "demo", *options], capture_output=True, text=True, timeout=RUN_S_MAX)
    assert ran.returncode == 0, f"{ran.stdout[-3000:]}\n{ran.stderr[-1000:]}"
    found = json.loads(result.read_text())
    assert found["good"]
    assert sum(found["kills"].values()) == 0
    assert [line["domain"] for line in found["domains"]] == [airline.domain for airline in AIRLINES]
    assert sum(line["published"] for line in found["domains"]) == found["published"]
    assert all(line[part]["delivered"] == line[part]["due"] for line in found["domains"] for part in ("own", "foreign"))
    [cut] = found["cuts"]
    assert 10_000 <= cut["ms"] < 20_000
    assert (cut["passed"], cut["is_complete"]) == (0, True)
    assert cut["waited"] > 0
    takers = {user for user, _ in SERVICES}
    walks = found["handovers"]
    assert walks["between_domains"] == 3 * len(takers)
    assert walks["causes"] == {"user": 3 * len(takers) - 1, "visit": 1}
    assert f"; {walks['between_domains']} moves of sessions between domains" in ran.stdout
    report = (tmp_path / "report.html").read_text()
    assert "Where the sessions were" in report
    assert "Between the domains" in report


@pytest.mark.integration
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_with_domains_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    work = tmp_path / "work"
    words = ["--domains", "--address-mode", "loopback", "--keep", str(work)]
    process = subprocess.Popen([sys.executable, "-m", "demo", *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "step 1 of 4: starting 6 travellers" in line:
            break
    process.send_signal(number)
    process.stdout.read()
    assert process.wait(60) == 128 + number
    mark = str(work).encode()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in read(path)]


def read(path: Path) -> bytes:
    """The bytes of a file; none if it is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--domains", "--domain"], "two demonstrations"),
        (["--domains", "--nat"], "--domains has its own servers"),
        (["--domains", "--relay", "wanderbus"], "--domains has its own servers"),
        (["--domains", "--sip", "kamailio"], "--domains has its own servers"),
        (["--domains", "--engine", "spark"], "--domains runs without Spark"),
        (["--domain", "--engine", "spark"], "--domain runs without Spark"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_go_with_domains_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(words)
    assert refused.value.code == 2
    assert reason in capsys.readouterr().err
