"""Progress in both forms, the tables, the report and the command line."""

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
from demo import html_plots, run
from demo.display import (
    HEADING_EVERY,
    STEPS,
    Display,
    RunState,
    TravellerState,
    latency_table,
    result_table,
    summary,
)
from demo.html_report import page
from demo.verdict import headline

ANA, EVE = "sip:ana@localhost", "sip:eve@localhost"


def display(*, terminal: bool) -> tuple[Display, io.StringIO]:
    text = io.StringIO()
    state = RunState(100, travellers={"ana": TravellerState("ana", "10.42.145.2", "DISCONNECTED", 6_007, 6_005, 11)})
    return Display(state, Console(file=text, force_terminal=terminal, width=80, highlight=False)), text


def plain(text: str) -> str:
    """A text without the terminal's colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_plain_progress_speaks_when_it_was_silent_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, text = display(terminal=False)
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    shown.state.published, shown.state.lake_records = 10, 4_321
    shown.phase("publishing")
    shown.beat()
    assert text.getvalue().count("\n") == 1
    clock[0] += 2.0
    shown.beat()
    heading, counters = text.getvalue().splitlines()[1:]
    assert heading.split() == ["time", "published", "delivered", "lake", "server", "away"]
    assert counters.split()[2:] == ["10/100", "6005/6007", "4321", "starting", "ana"]


def test_the_headings_of_the_plain_form_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, text = display(terminal=False)
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    shown.state.published = 10
    for _ in range(HEADING_EVERY + 1):
        clock[0] += 2.0
        shown.beat()
    assert text.getvalue().count("published") == 2
    assert max(map(len, text.getvalue().splitlines())) <= 80


def test_long_steps_show_their_seconds_in_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, text = display(terminal=False)
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    shown.phase("counting: starting Spark", 4)
    clock[0] += 2.0
    shown.beat()
    assert "step 4 of 4: counting: starting Spark" in text.getvalue()
    assert "… counting: starting Spark, 2 s" in text.getvalue()


@pytest.mark.parametrize("step", range(1, len(STEPS) + 1))
def test_the_live_table_has_headings_and_fits_80_columns(step: int) -> None:
    shown, text = display(terminal=True)
    shown.state.step, shown.state.phase = step, "everything is published; waiting for the last deliveries"
    shown.state.published = shown.state.events = 336_776
    shown.state.spark, shown.state.lake_records = "matches within 0.2 s", 4_321
    shown.console.print(shown.render())
    words = plain(text.getvalue())
    for word in ("traveller", "status", "address", "delivered", "expected", "moves", f"step {step} of 4"):
        assert word in words
    assert "ana        DISCONNECTED  10.42.145.2       6005      6007     11" in words
    assert "Spark  matches within 0.2 s, the lake has 4321 records" in words
    assert len(words.splitlines()) == 6, "nothing is wrapped"
    assert max(map(len, words.splitlines())) <= 80


def test_the_bar_shows_progress_in_every_step() -> None:
    shown, _ = display(terminal=True)
    texts = []
    shown.state.published = 50
    for shown.state.step in (1, 2, 3, 4):
        lines = io.StringIO()
        Console(file=lines, width=80).print(shown.render())
        texts.append(lines.getvalue().splitlines()[3])
    assert texts[0].endswith("0 s")
    assert texts[1].endswith("50 of 100 published")
    assert texts[2].endswith("6005 of 6007 delivered")
    assert texts[3].endswith("0 s")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_dead_server_is_shown_while_it_is_dead(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, text = display(terminal=terminal)
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    shown.state.published, shown.state.server = 10, "starting"
    shown.state.server_dead_since = clock[0]
    clock[0] += 2.4
    shown.beat()
    if terminal:
        shown.console.print(shown.render())
    assert "DEAD for 2.4 s" in plain(text.getvalue())
    shown.state.server, shown.state.server_dead_since = "ready", None
    assert shown.state.server_status == "ready"


def result(**changes: Any) -> dict[str, Any]:
    healing = {"p50": 21.4, "p95": 40.0, "max": 41.0}
    nothing = {"p50": None, "p95": None, "max": None}
    counts = {"expected": 5, "delivered": 5, "lost": 0, "repeated": 0, "out_of_order": 0, "unexpected": 0}
    wanted = {"subjects": ["Departure"], "subscriptions": ["(Dest == IAH) and (DepDelay < 30)"]}
    subjects = [
        {"subject": "Departure", "engine": "broker", "published": 60, "takings": 7, "latency_ms": healing},
        {"subject": "Arrival", "engine": "spark", "published": 40, "takings": 0, "latency_ms": nothing},
    ]
    lines = [
        {"user": ANA, **wanted, **counts, "away_s": 1.25, "healing_ms": healing, "good": True},
        {"user": EVE, **wanted, **counts, "away_s": 0.0, "healing_ms": nothing, "good": True},
    ]
    return {
        "travellers": lines,
        "published": 100,
        "quarantined_own_records": 0,
        "slice": {"first_row": 0, "rows": 60, "events": 100},
        "engine": "both",
        "subjects": subjects,
        "address_changes": 2,
        "kills": {"agent": 1, "server": 1, "spark": 0},
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
    "outages": [{"who": "server", "from_us": 2_200_000, "to_us": 3_400_000}],
}


def faulty() -> dict[str, Any]:
    bad = result(good=False)
    bad["travellers"][0].update(lost=3, delivered=2, good=False)
    return bad


def printed(shown: object) -> str:
    text = io.StringIO()
    Console(file=text, width=80).print(shown)
    assert max(map(len, text.getvalue().splitlines())) <= 80
    return text.getvalue()


def test_the_result_table_has_one_line_for_all_that_is_good() -> None:
    shown = printed(result_table(result()))
    assert re.search(r"all 2: good +10 +10 +0 +0 +0 +1\.2 s +21/40/41\n", shown)
    assert "ana" not in shown


def test_the_result_table_shows_each_difference() -> None:
    shown = printed(result_table(faulty()))
    assert re.search(r"ana +5 +2 +3 +0 +0 +1\.2 s +21/40/41\n", shown)
    assert re.search(r"other 1: good +5 +5 +0 +0 +0 +0\.0 s +—\n", shown)


def test_surplus_events_have_a_column() -> None:
    bad = faulty()
    bad["travellers"][1].update(unexpected=2, good=False)
    assert re.search(r"eve +5 +5 +0 +0 +0 +0\.0 s +— +2\n", printed(result_table(bad)))
    assert "<td class='bad' data-is='unexpected'>2</td>" in page(bad, EVIDENCE)


def test_no_column_is_empty_however_large_the_numbers() -> None:
    large = result()
    for line in large["travellers"]:
        line.update(user="sip:bartholomew@localhost", expected=336_776, delivered=336_770, lost=6, good=False)
        line.update(healing_ms={"p50": 1_234.0, "p95": 12_345.0, "max": 23_456.0}, away_s=123.4)
    shown = printed(result_table(large))
    for heading in ("expected", "delivered", "lost", "repeated", "order", "away", "p50/p95/max"):
        assert heading in shown
    assert re.search(r"bartholomew +336776 +336770 +6 +0 +0 +123\.4 s +1234/12345/23456\n", shown)


def test_latencies_are_apart_for_the_server_and_for_spark() -> None:
    shown = printed(latency_table(result()))
    assert re.search(r"Departure the server +7 +21/40/41\n", shown)
    assert re.search(r"Arrival +Spark +0 +—\n", shown)
    html = page(result(), EVIDENCE)
    cells = re.findall(r"<td data-is='matched by'>([^<]+)</td>", html)
    assert cells == ["the server", "Spark"]


def test_a_kill_of_spark_is_named_in_the_numbers_and_in_time() -> None:
    assert "Spark" not in headline(result())[3].caption
    killed = result(kills={"agent": 1, "server": 1, "spark": 1})
    assert (headline(killed)[3].number, headline(killed)[3].caption.endswith(", Spark 1")) == (3, True)
    evidence = {
        **EVIDENCE,
        "kills": [{"who": "spark", "at_us": 2_200_000}],
        "outages": [
            {"who": "spark", "from_us": 1_000_000, "to_us": 1_500_000},
            {"who": "spark", "from_us": 2_200_010, "to_us": 4_700_010},
        ],
    }
    html = html_plots.timeline(evidence)
    assert html.count("class='band waiting'") == 2 * 2
    assert "Spark killed, down 2.5 s" in html


def test_the_verdict_and_four_numbers_come_first() -> None:
    words = " ".join(printed(summary(result())).split())
    assert words.startswith("GOOD 10 0 2 2 ")
    assert printed(summary(faulty())).startswith("NOT GOOD")
    assert [each.number for each in headline(faulty())] == [7, 3, 2, 2]
    assert [each.good for each in headline(faulty())] == [False, False, True, True]


def test_the_report_begins_with_the_verdict_and_four_numbers() -> None:
    html = page(result(), EVIDENCE)
    top = html[html.index("<body>") : html.index("<h2>")]
    assert "good: 10 of 10 delivered, none lost, repeated or out of order" in top
    assert re.findall(r"<b class=''>(\d+)</b>", top) == ["10", "0", "2", "2"]


def test_the_report_needs_no_network_and_escapes_what_it_quotes() -> None:
    html = page(result(), EVIDENCE, "run-server.html")
    assert re.findall(r"""href\s*=\s*'([^']*)'""", html) == ["run-server.html"], "the file beside it"
    html = page(result(), EVIDENCE)
    assert not re.search(r"""(?:src|href)\s*=|https?://|@import|url\(""", html)
    assert html.count("class='plot'") == 3
    assert "(DepDelay &lt; 30)" in html
    assert "&lt;killed&gt;" in html
    assert "SIP server: kamailio; media relay: rtpengine" in page(result(sip="kamailio", relay="rtpengine"), EVIDENCE)


def test_the_report_fits_small_screens() -> None:
    """Text that is part of a drawing would shrink with it: at 420 pixels it could not be read."""
    html = page(result(), EVIDENCE)
    assert "width=device-width" in html
    assert "<text" not in html
    assert not re.search(r"[^-]width: ?\d{3,}px", html)


def test_the_report_shows_differences_alone_and_folds_the_rest() -> None:
    good = page(result(), EVIDENCE)
    assert "None: each of the 2 travellers received exactly what it was due." in good
    unfolded = re.sub(r"<details>.*?</details>", "", page(faulty(), EVIDENCE), flags=re.DOTALL)
    assert "NOT good: 3 lost" in unfolded
    cells = re.findall(r"<td class='(\w*)' data-is='([^']+)'>([^<]+)</td>", unfolded)
    ana = [("", "traveller", "ana"), ("", "expected", "5"), ("bad", "delivered", "2"), ("bad", "lost", "3")]
    assert cells[:4] == ana
    assert "eve" not in [text for _, _, text in cells]
    assert "The other 1 received exactly what they were due." in unfolded


def test_the_servers_outage_is_shaded_across_every_strip() -> None:
    html = html_plots.timeline(EVIDENCE)
    span_us = 5_000_000 - 1_000_000
    left, width = (2_200_000 - 1_000_000) / span_us * 100, 1_200_000 / span_us * 100
    band = f"<i class='band outage' style='left:{left:.2f}%;width:{width:.2f}%' title='server down'></i>"
    assert html.count(band) == 2
    assert "server killed, down 1.2 s" in html


def of_domain() -> dict[str, list[dict[str, Any]]]:
    """Evidence of a run in which ana's session walks twice, and eve's stays."""

    def walk(source: str, target: str, cause: str, fenced_us: int, imported_us: int) -> dict[str, Any]:
        times = {"fenced_us": fenced_us, "imported_us": imported_us, "gap_us": None}
        return {"user": ANA, "source": source, "target": target, "cause": cause, **times}

    return {
        **EVIDENCE,
        "homes": [{"user": ANA, "server": "s1"}, {"user": EVE, "server": "s2"}],
        "walks": [
            walk("s1", "s2", "network", 2_000_000, 2_100_000),
            walk("s2", "s3", "drain", 4_000_000, 4_000_000),
        ],
        "drains": [{"who": "s2", "from_us": 3_000_000, "to_us": 5_000_000}],
        "group_moves": [{"subject": "Departure", "who": "s4", "to": "s5", "from_us": 4_000_000, "to_us": 4_500_000}],
    }


def test_the_walks_are_drawn_server_by_server() -> None:
    gaps = {"p50": 3.0, "p95": 41.0, "max": 60.0}
    walks = {"moved": 2, "causes": {"network": 1, "drain": 1}, "gap_ms": gaps}
    html = page(result(handovers=walks), of_domain())
    strips = html[html.index("Where the sessions were") :]
    stays = re.findall(r"<i class='at (n\d)' style='left:([\d.]+)%;width:([\d.]+)%' title='([^']+)'", strips)
    assert stays == [
        ("n0", "0.00", "25.00", "at s1"),
        ("n1", "27.50", "47.50", "at s2, because of the network of the new address"),
        ("n2", "75.00", "25.00", "at s3, because of the drain of the server"),
        ("n1", "0.00", "100.00", "at s2"),
    ]
    assert "<i class='band drain' style='left:50.00%;width:50.00%' title='s2 drains'></i>" in strips
    assert strips.count("<i class='group' style='left:87.50%'></i>") == 2
    assert "s5 leads Departure in place of s4" in strips
    assert "2 handovers of sessions: 1 because of the network of the new address and 1 because of the drain" in strips
    assert "3 ms or less in half of them, 41 ms in 95 %, and 60 ms at most" in strips
    assert "Where the sessions were" not in page(result(), EVIDENCE)


def test_every_plot_has_an_axis_with_ticks_and_a_unit() -> None:
    for html, unit in (
        (html_plots.timeline(EVIDENCE), "seconds since the first event"),
        (html_plots.healing(EVIDENCE["moves"]), "milliseconds until connected again"),
        (html_plots.delivered(result()["travellers"]), "notifications"),
    ):
        assert f"<div class='unit'>{unit}</div>" in html
        axis = re.search(r"<div class='axis'>(.*?)</div>", html)
        assert axis
        assert axis[1].count("<span") >= 3


def test_plots_of_nothing_are_words() -> None:
    assert html_plots.timeline({**EVIDENCE, "taken": []}).startswith("<p>")
    assert html_plots.healing([EVIDENCE["moves"][1]]).startswith("<p>")


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
    async def run_demo(*_: object) -> tuple[dict[str, Any], run.Evidence]:
        return result(good=good), EVIDENCE

    monkeypatch.setattr(command, "run_demo", run_demo)
    files = [str(tmp_path / "out" / name) for name in ("result.json", "report.html")]
    assert command.main(["--json", files[0], "--report", files[1]]) == status
    assert all(Path(name).stat().st_size for name in files)


def test_the_drain_ends_when_all_is_delivered_or_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETTLE_S", 0.0)
    monkeypatch.setattr(run, "QUIET_S", 0.2)
    traveller = TravellerState("ana", status="CONNECTED", expected=3, taken=3)
    asyncio.run(run.drain(RunState(9, spark_lag=0, travellers={"ana": traveller})))
    traveller.taken = 2
    asyncio.run(asyncio.wait_for(run.drain(RunState(9, spark_lag=0, travellers={"ana": traveller})), 5.0))


def test_the_drain_waits_for_a_traveller_that_is_not_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETTLE_S", 0.0)
    monkeypatch.setattr(run, "QUIET_S", 0.2)
    traveller = TravellerState("ana", status="DISCONNECTED", expected=3, taken=2)

    async def heal_late() -> None:
        draining = asyncio.create_task(run.drain(RunState(9, spark_lag=0, travellers={"ana": traveller})))
        done, _ = await asyncio.wait([draining], timeout=1.0)
        assert not done
        traveller.status, traveller.taken = "CONNECTED", 3
        await asyncio.wait_for(draining, 5.0)

    asyncio.run(heal_late())


@pytest.mark.parametrize("lag", [None, 3])
def test_the_drain_waits_for_spark(monkeypatch: pytest.MonkeyPatch, lag: int | None) -> None:
    monkeypatch.setattr(run, "SETTLE_S", 0.0)
    monkeypatch.setattr(run, "QUIET_S", 0.2)
    traveller = TravellerState("ana", status="CONNECTED", expected=3, taken=2)
    state = RunState(9, spark_lag=lag, travellers={"ana": traveller})

    async def match_late() -> None:
        draining = asyncio.create_task(run.drain(state))
        done, _ = await asyncio.wait([draining], timeout=1.0)
        assert not done
        state.spark_lag = 0
        await asyncio.wait_for(draining, 5.0)

    asyncio.run(match_late())
