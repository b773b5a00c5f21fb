"""What is shown: progress in both forms, the table, the report, the command line."""

from __future__ import annotations

import asyncio
import io
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from demo import __main__ as command
from demo import conductor, plots
from demo.progress import Board, Scene, SeatView, result_table
from demo.report import page

ANA, EVE = "sip:ana@localhost", "sip:eve@localhost"


def board(*, terminal: bool) -> tuple[Board, io.StringIO]:
    text = io.StringIO()
    scene = Scene(100, seats={"ana": SeatView("ana", "10.0.0.1", "CONNECTED", 7, 5, 1)})
    return Board(scene, Console(file=text, force_terminal=terminal, width=120, highlight=False)), text


def test_plain_progress_speaks_when_it_was_silent_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, text = board(terminal=False)
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    shown.scene.published = 10
    shown.phase("publishing")
    shown.beat()
    assert text.getvalue().count("\n") == 1
    clock[0] += 2.0
    shown.beat()
    assert "delivered 5/7" in text.getvalue()


def test_the_live_table_shows_every_traveller() -> None:
    shown, text = board(terminal=True)
    shown.console.print(shown.render())
    for word in ("ana", "CONNECTED", "10.0.0.1", "published 0/100"):
        assert word in text.getvalue()


def result(**changes: Any) -> dict[str, Any]:
    healing = {"p50": 21.4, "p95": 40.0, "max": 41.0}
    nothing = {"p50": None, "p95": None, "max": None}
    counts = {"expected": 5, "delivered": 5, "lost": 0, "repeated": 0, "out_of_order": 0, "unexpected": 0}
    subscriptions = ["(Dest == IAH) and (DepDelay < 30)"]
    lines = [
        {"user": ANA, "subscriptions": subscriptions, **counts, "away_s": 1.25, "healing_ms": healing, "good": True},
        {"user": EVE, "subscriptions": subscriptions, **counts, "away_s": 0.0, "healing_ms": nothing, "good": True},
    ]
    return {
        "travellers": lines,
        "published": 100,
        "slice": {"first_row": 0, "rows": 100},
        "address_changes": 2,
        "kills": {"agent": 1, "server": 1},
        "healing_ms": healing,
        "address_mode": "netns",
        "trouble": [],
        "sip": "wanderbus",
        "relay": "none",
        "relayed_datagrams": None,
        "good": True,
        **changes,
    }


EVIDENCE: dict[str, list[dict[str, Any]]] = {
    "expected": [{"user": ANA, "row": 1}, {"user": EVE, "row": 1}],
    "taken": [{"user": ANA, "seq": n, "row": n, "at_us": n * 1_000_000} for n in range(1, 6)],
    "moves": [
        {"user": ANA, "moved_us": 2_000_000, "healed_us": 2_030_000, "address": "10.0.0.2"},
        {"user": EVE, "moved_us": 2_500_000, "healed_us": None, "address": "10.0.0.9"},
    ],
    "away": [{"user": ANA, "from_us": 3_000_000, "to_us": 4_000_000, "why": "<killed>"}],
    "kills": [{"who": "server", "at_us": 2_200_000}],
}


def test_the_result_table_has_a_line_for_each_and_for_all() -> None:
    text = io.StringIO()
    Console(file=text, width=130).print(result_table(result()))
    shown = text.getvalue()
    assert ANA in shown
    assert "21/40/41 ms" in shown
    assert re.search(r"all[ │]+10[ │]+10[ │]+0[ │]+0[ │]+0[ │]+1\.2 s", shown)


def test_the_report_needs_no_network_and_escapes_what_it_quotes() -> None:
    html = page(result(), EVIDENCE)
    assert not re.search(r"""(?:src|href)\s*=|https?://|@import|url\(""", html)
    assert html.count("<svg") == 3
    assert "(DepDelay &lt; 30)" in html
    assert "&lt;killed&gt;" in html
    assert "none lost, repeated or out of order" in html
    assert "SIP server: kamailio; media relay: rtpengine" in page(result(sip="kamailio", relay="rtpengine"), EVIDENCE)


def test_the_report_says_what_is_wrong() -> None:
    bad = result(good=False)
    bad["travellers"][0].update(lost=3, delivered=2, good=False)
    assert "NOT good: 3 lost" in page(bad, EVIDENCE)


def test_plots_of_nothing_are_words() -> None:
    assert plots.timeline({**EVIDENCE, "taken": []}).startswith("<p>")
    assert plots.healing([EVIDENCE["moves"][1]]).startswith("<p>")


@pytest.mark.parametrize("arguments", [["--first-row", "336776"], ["--rows", "0"], ["--first-row", "-1"]])
def test_a_slice_outside_the_file_cannot_run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*arguments, "--address-mode", "loopback"]) == 2
    assert "cannot run" in capsys.readouterr().err


def test_missing_java_is_one_line_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert command.main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_directory_to_keep_must_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").touch()
    assert command.main(["--keep", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(("good", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_is_the_verdict(
    good: bool, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def conduct(*_: object) -> tuple[dict[str, Any], conductor.Evidence]:
        return result(good=good), EVIDENCE

    monkeypatch.setattr(command, "conduct", conduct)
    files = [str(tmp_path / "out" / name) for name in ("result.json", "report.html")]
    assert command.main(["--json", files[0], "--report", files[1]]) == status
    assert all(Path(name).stat().st_size for name in files)


def test_the_drain_ends_when_all_is_delivered_or_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "SETTLE_S", 0.0)
    monkeypatch.setattr(conductor, "QUIET_S", 0.2)
    seat = SeatView("ana", expected=3, taken=3)
    asyncio.run(conductor.drain(Scene(9, seats={"ana": seat})))
    seat.taken = 2
    asyncio.run(asyncio.wait_for(conductor.drain(Scene(9, seats={"ana": seat})), 5.0))
