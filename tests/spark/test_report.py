"""The report is one page that needs nothing else, and says what the figures say (SPEC T-08)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from wanderbus.errors import StorageError
from wanderbus.pipeline.evidence import Taking
from wanderbus.pipeline.journeys import Journey
from wanderbus.pipeline.plots import POINTS_MAX, delivery_plot, latency_plot
from wanderbus.pipeline.report import COLUMNS, shown, verdict, write_report

START_US = 1_700_000_000_000_000
FINE = dict.fromkeys(Journey.__struct_fields__, 0) | {"expected": 1_200, "delivered": 1_200, "away_s": 13.25}
ALICE = "sip:alice@localhost"


def result(*users: str, **figures: Any) -> dict[str, Any]:
    journey = FINE | {"healing_p50_ms": None} | figures
    return {
        "subject": "Departure",
        "published": 4_321,
        "totals": journey,
        "travellers": [{"user": user, **journey} for user in users],
        "latency": [{"above_ms": 4.0, "up_to_ms": 5.7, "deliveries": 12}],
    }


def write_evidence(directory: Path, **lines: Sequence[Mapping[str, Any]]) -> Path:
    for name in ("taken", "moves", "away"):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines.get(name, [])))
    return directory


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return write_evidence(
        tmp_path,
        taken=[{"user": ALICE, "seq": n, "row": n, "at_us": START_US + n * 10**6} for n in range(1, 20)],
        moves=[
            {"user": ALICE, "moved_us": START_US + 5_000_000, "healed_us": START_US + 5_120_000, "address": "a"},
            {"user": ALICE, "moved_us": START_US + 7_000_000, "healed_us": None, "address": "b"},
        ],
        away=[{"user": ALICE, "from_us": START_US, "to_us": START_US + 2_000_000, "why": "tunnel"}],
    )


def page(result: dict[str, Any], evidence: Path) -> str:
    path = evidence / "out" / "report.html"
    write_report(result, evidence, path)
    return path.read_text(encoding="utf-8")


class References(HTMLParser):
    """Collects whatever a browser would fetch, and the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action") and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {name}={value}")
            if name == "id" and value and tag not in ("path", "clippath"):
                self.ids.append(value)
        if tag in ("script", "link", "iframe"):
            self.fetched.append(tag)


def test_the_page_fetches_nothing_and_repeats_no_id(evidence: Path) -> None:
    html = page(result(ALICE, "sip:bob@localhost"), evidence)
    references = References()
    references.feed(html)
    assert references.fetched == []
    assert len(references.ids) == len(set(references.ids))
    assert "@import" not in html
    assert re.findall(r"url\((?!#)", html) == []


def test_table_plots_and_verdict_are_there(evidence: Path) -> None:
    html = page(result(ALICE, "sip:bob@localhost"), evidence)
    assert "All 1,200 expected notifications were delivered once and in order." in html
    assert "4,321 events published" in html
    assert html.count("<svg ") == 4
    assert html.count('aria-label="Notifications delivered over time"') == 2
    assert re.search(rf"<td>{ALICE}</td><td>1,200</td><td>1,200</td><td>0</td>", html)
    assert "<td>13.2</td><td>\u2013</td>" in html
    assert 'class="bad"' not in html


def test_defects_are_named_and_marked(evidence: Path) -> None:
    html = page(result(ALICE, lost=3, repeated=1_001), evidence)
    assert "Not as it should be: 3 lost, 1,001 repeated." in html
    assert html.count('<td class="bad">3</td>') == 2


def test_plots_take_the_colour_of_the_page(evidence: Path) -> None:
    html = page(result(ALICE), evidence)
    assert "currentColor" in html
    assert "#000000" not in html
    assert "prefers-color-scheme: dark" in html


def test_names_are_escaped(evidence: Path) -> None:
    html = page(result("sip:<script>@localhost"), evidence)
    assert "<script>" not in html
    assert "sip:&lt;script&gt;@localhost" in html


def test_a_run_without_moves_or_latency_says_so(tmp_path: Path) -> None:
    html = page(result() | {"latency": []}, write_evidence(tmp_path))
    assert "No change of address healed in this run." in html
    assert "No latency was measured in this run." in html


def test_the_same_run_gives_the_same_page(evidence: Path) -> None:
    assert page(result(ALICE), evidence) == page(result(ALICE), evidence)


def test_only_so_many_travellers_get_a_plot(evidence: Path) -> None:
    html = page(result(*(f"user{number}" for number in range(42))), evidence)
    assert html.count('aria-label="Notifications delivered over time"') == 40
    assert "2 more travellers are in the table alone." in html


def test_long_runs_do_not_make_long_plots() -> None:
    takings = [Taking("a", n, n, START_US + n * 1_000) for n in range(20 * POINTS_MAX)]
    svg = delivery_plot(takings, [], [], len(takings), (START_US, START_US + 10**9))
    assert len(svg) < 200_000


def test_the_first_bucket_of_latency_can_be_drawn_on_a_logarithmic_axis() -> None:
    assert "<svg " in latency_plot([{"above_ms": 0.0, "up_to_ms": 1.0, "deliveries": 5}])


def test_unusable_evidence_is_named_by_file_and_line(evidence: Path) -> None:
    (evidence / "moves.jsonl").open("a").write("{}\n")
    with pytest.raises(StorageError, match=r"moves.jsonl line 3 cannot be used: .*missing required field `user`"):
        page(result(ALICE), evidence)
    (evidence / "moves.jsonl").unlink()
    with pytest.raises(StorageError, match=r"moves.jsonl is missing"):
        page(result(ALICE), evidence)


def test_figures_are_shown_for_reading() -> None:
    assert [shown(figure) for figure in (None, 1_234, 1_234.56, "sip:a@b")] == ["\u2013", "1,234", "1,234.6", "sip:a@b"]
    assert verdict(FINE | {"expected": 0}) == "Nothing was expected and nothing came."
    assert {column.name for column in COLUMNS} <= {"user", *Journey.__struct_fields__}
