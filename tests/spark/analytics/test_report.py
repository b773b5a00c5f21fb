"""The report needs no network, shows what it is given, and fits a phone (SPEC T-08)."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from wanderbus.errors import StorageError
from wanderbus.pipeline.analytics import Analysis, Ranking, Totals, page, write_page
from wanderbus.pipeline.analytics.report import PageRefresh, charts
from wanderbus.pipeline.analytics.report.tables import device_name, duration

START_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000
USER = "sip:a.very.long.name.of.a.user.who.travels.far@an.equally.long.domain.example.org"
LONG = "Dest == 'IAH' and " * 9
NASTY = "<script>alert('x')</script>&\u202e"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def counts(**more: Any) -> dict[str, Any]:
    return {
        "generated": 12_345,
        "delivered": 12_000,
        "dropped": 300,
        "queued": 45,
        "handed_over": 0,
        "given_up": 7,
        **more,
    }


def latency(**names: Any) -> list[dict[str, Any]]:
    own = dict.fromkeys(("subject", "user", "device")) | names
    times = {"acknowledgements": 12_000, "p50_ms": 1.5, "p95_ms": 250.0, "p99_ms": 9_000.0, "max_ms": 200_000.0}
    return [{**own, "part": part, **times} for part in ("accepting", "matching", "away", "acknowledging", "total")]


STEPS = ("awaited_us", "fenced_us", "imported_us", "done_us", "taken_us", "gap_us", "cause")
HANDOVER = {
    **{"user": USER, "session": NASTY, "owner_epoch": START_US, "source": "s1", "target": "s2", "cause": "drain"},
    **{"outcome": "moved", "begun_us": START_US, "awaited_us": START_US, "fenced_us": START_US + 7_000},
    **{"imported_us": START_US + 16_000, "done_us": START_US + 16_500, "notifications": 3, "bytes": 45_678},
    **{"taken_us": START_US + 80_000, "gap_us": 73_000},
}


GROUP_STEPS = ("paused_us", "pause_us", "waited", "publishers")
GROUP_MOVE = {
    **{"channel_group": 17, "epoch": 2, "source": "s1", "target": "s2", "is_forced": False, "outcome": "moved"},
    **{"begun_us": START_US, "paused_us": START_US + 7_000, "moved_us": START_US + 16_000, "stayed_us": None},
    **{"adopted_us": START_US + 16_500, "pause_us": 9_500, "waited": 12, "publishers": 1_200},
}


def analysis() -> Analysis:
    """Figures with long and hostile names, and with more rows than are shown at once."""
    device = "urn:uuid:0a1b2c3d-0000-1111-2222-333344445555"
    own = {"user": USER, "session": "default"}
    of_device = {"user": USER, "device": device}
    devices = [
        {
            **of_device,
            **{"events": 3, "repeated_events": 0, "taken": 12_000, "redelivered": 2, "absences": 2, "moves": 1},
            **{"away_us": HOUR_US, "healed": 1, "is_away": True, "taking_p95_ms": 250.0, "healing_p50_ms": 80.0},
            "healing_max_ms": 80.0,
        }
    ] * 12
    filters = {
        "subject": "S",
        "covering": "s1",
        "covering_subscriptions": 3,
        "covered": "s2",
        "covered_subscriptions": 1,
    }
    return Analysis(
        server="wb",
        records=54_321,
        first_us=START_US,
        last_us=START_US + HOUR_US,
        totals=Totals(
            events=9_000, generated=12_345, delivered=12_000, dropped=300, queued=45, moves=1, healed=1,
            healing_p50_ms=80.0, healing_p95_ms=80.0, healing_max_ms=80.0, live=7, never_matched=1,
            handovers=7_654, handover_gap_p50_ms=12.0, handover_gap_p99_ms=73.0, handover_gap_max_ms=90.0,
            handover_notifications=4_321, handover_bytes=2_000_000, group_moves=4_322, group_pause_p50_ms=21.0,
            group_pause_p99_ms=220.0, group_pause_max_ms=240.0,
        ),
        reasons=Ranking([{"reason": "queue.notifications_max", "dropped": 300}]),
        drops=Ranking([{**own, "subject": NASTY, "reason": "queue.notifications_max", "dropped": 300}]),
        sessions=Ranking([{**own, **counts(), "restricted": 5, "missing": 0, "repeated": 0}]),
        latencies={
            "server": Ranking(latency()),
            "subject": Ranking(latency(subject=NASTY)),
            "user": Ranking(latency(user=USER)),
            "device": Ranking(latency(user=USER, device=device), is_cut=True),
        },
        depth_bucket_us=60_000_000,
        depth=[{"from_us": START_US + n * 60_000_000, "depth": n * 7, "depth_max": n * 9} for n in range(60)],
        depths=[{**own, "from_us": START_US, "depth": 3, "depth_max": 9}],
        devices=Ranking(devices),
        slow=Ranking(devices[:2]),
        absences=[
            {**of_device, "from_us": START_US, "to_us": START_US + 60_000_000, "reason": "timeout"},
            {**of_device, "from_us": START_US + HOUR_US // 2, "to_us": None, "reason": "timeout"},
        ],
        moves=Ranking(
            [{**of_device, "moved_us": START_US, "former": "[2001:db8::1234:5678:9abc:def0]:54321", "address": "b:1",
              "healed_us": None, "healing_us": None}]
        ),
        handovers=Ranking([HANDOVER, {**HANDOVER, "outcome": "withdrawn", **dict.fromkeys(STEPS), "bytes": None}]),
        causes=Ranking(
            [{"cause": "drain", "withdrawn": 1, "under_way": 0, "handovers": 7_654, "gap_p50_ms": 12.0,
              "gap_p99_ms": 73.0, "gap_max_ms": 90.0, "notifications": 4_321, "bytes": 2_000_000}]
        ),
        group_moves=Ranking([GROUP_MOVE, {**GROUP_MOVE, "is_forced": True, **dict.fromkeys(GROUP_STEPS)}]),
        subjects=Ranking([{"subject": NASTY, "events": 9_000, "events_in_peak_s": 99, **counts()}]),
        never=Ranking([{"id": "wb-1", **own, "subject": NASTY, "expression": LONG, "events_seen": 4}]),
        coverings=Ranking([{**filters, "covering_expression": "n > 1", "covered_expression": LONG, "is_equal": False}]),
    )  # fmt: skip


EMPTY = Analysis(
    server="", records=0, first_us=None, last_us=None, totals=Totals(), reasons=Ranking(), drops=Ranking(),
    sessions=Ranking(), latencies=dict.fromkeys(("server", "subject", "user", "device"), Ranking()), depth_bucket_us=1,
    depth=[], depths=[], devices=Ranking(), slow=Ranking(), absences=[], moves=Ranking(), handovers=Ranking(),
    causes=Ranking(), group_moves=Ranking(), subjects=Ranking(), never=Ranking(), coverings=Ranking(),
)  # fmt: skip


class Page(HTMLParser):
    """Checks that tags close in order, and collects tags, attributes and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words += f"{data} "


@pytest.mark.parametrize("found", [analysis(), EMPTY], ids=["full", "empty"])
def test_t08_the_page_is_whole_and_needs_no_network(found: Analysis) -> None:
    text = page(found)
    shown = Page(text)
    assert not {"script", "link", "img", "iframe"} & set(shown.tags)
    assert not [name for name, _ in shown.attributes if name.startswith("on")]
    assert all(value and value.startswith("#") for name, value in shown.attributes if name in ("href", "src"))
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_t08_the_page_shows_the_figures_and_nothing_of_a_user_is_markup() -> None:
    text = page(analysis())
    shown = Page(text)
    for words in ("300 matches dropped", "12,345", "54,321 records", "queue.notifications_max", "80 ms", USER):
        assert words in shown.words, words
    assert "alert('x')" in shown.words
    assert "\u202e" not in text, "a name cannot turn the text around"
    assert "4 more" in shown.words, "the ninth device is folded"


@pytest.mark.parametrize(("events", "rate"), [(9_000, "2.5"), (1, "0.00028"), (90_000_000, "25,000")])
def test_t08_the_page_has_the_events_per_second(events: int, rate: str) -> None:
    found = msgspec.structs.replace(analysis(), first_us=START_US, last_us=START_US + HOUR_US)
    totals = msgspec.structs.replace(found.totals, events=events)
    assert f"clock: {rate} events/s." in page(msgspec.structs.replace(found, totals=totals))


def test_t08_the_page_has_the_handovers_and_their_gaps() -> None:
    section = page(analysis()).partition("<section id='handovers'>")[2].partition("</section>")[0]
    words = " ".join(Page(section).words.split())
    assert "7,654 handovers moved 4,321 notifications in 2,000 kB" in words
    assert "half within 12 ms, 99 % within 73 ms, the longest 90 ms" in words
    assert "drain of the server moved 7.00 ms 9.00 ms 0.50 ms 73 ms 3 46 kB" in words, "the steps of one"
    assert "not recorded withdrawn — — — — 3 —" in words
    assert "drain, 99 %: 73 ms" in section, "the plot"
    assert "No session went to another server." in Page(page(EMPTY)).words


def test_t08_the_page_has_the_moves_of_channel_groups_and_their_pauses() -> None:
    section = page(analysis()).partition("<section id='groups'>")[2].partition("</section>")[0]
    words = " ".join(Page(section).words.split())
    assert "4,322 channel groups got another leader. Publishes waited: half within 21 ms, 99 % within 220 ms" in words
    assert "17 s1 s2 2 planned moved 7.00 ms 9.00 ms 0.50 ms 9.50 ms 12 1,200" in words
    assert "17 s1 s2 2 forced moved — — 0.50 ms — — —" in words
    assert "No channel group was moved to another leader." in Page(page(EMPTY)).words


def test_t08_a_run_without_a_fault_says_so() -> None:
    totals = Totals(events=4, generated=4, delivered=3, queued=1)
    words = Page(page(msgspec.structs.replace(EMPTY, totals=totals))).words
    assert "Nothing lost, dropped or repeated: 3 matches delivered, and 1 wait." in words
    given_up = Page(page(msgspec.structs.replace(EMPTY, totals=Totals(generated=6, delivered=3, given_up=3)))).words
    assert "Nothing lost, dropped or repeated: 3 matches delivered, 3 given up on request." in given_up
    assert "Nothing was dropped. 3 matches were given up on request." in given_up
    for fault, count in (("notifications missing", "missing"), ("events accepted twice", "repeated_events")):
        broken = msgspec.structs.replace(totals, **{count: 2})
        assert f"2 {fault}." in Page(page(msgspec.structs.replace(EMPTY, totals=broken))).words


def test_t08_the_page_says_how_many_filters_were_not_compared() -> None:
    words = "12 filters were not compared with all others of their subject: of each subject, the 400 filters"
    cut = msgspec.structs.replace(EMPTY, totals=Totals(uncompared=12))
    assert words in Page(page(cut)).words
    assert "not compared" not in Page(page(EMPTY)).words


def test_t08_devices_have_short_names_and_their_whole_ones_for_who_asks() -> None:
    shown = page(analysis())
    cell = "<td class='word' data-is='device' title='urn:uuid:0a1b2c3d-0000-1111-2222-333344445555'>0a1b2c3d</td>"
    assert cell in shown
    assert ">urn:uuid:" not in shown
    assert device_name("server") == "server"


def test_t08_the_page_names_the_tables_that_rejected_records() -> None:
    whole = msgspec.structs.replace(analysis(), rejected={"notifications": 1_234})
    section = page(whole).partition("<section id='rejected'>")[2].partition("</section>")[0]
    assert "notifications" in section
    assert "<td class='bad' data-is='records'>1,234</td>" in section
    assert "No table rejected a record." in page(analysis())


def test_t08_only_a_live_page_reloads_itself() -> None:
    assert "http-equiv" not in page(analysis())
    assert "<meta http-equiv='refresh' content='7'>" in page(analysis(), refresh=PageRefresh(7.0))


def test_t08_the_file_is_replaced_in_one_step_and_keeps_the_former_if_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "report.html"
    write_page(path, "one")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(StorageError, match="cannot be written: No space left"):
        write_page(path, "two")
    assert path.read_text() == "one"
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]


WIDTHS = (360, 400, 1_000)

PROBE = """<!doctype html><body>{frames}<pre></pre><script>onload = () => {{
  const lines = [];
  for (const frame of document.querySelectorAll("iframe")) {{
    const inner = frame.contentDocument, width = frame.clientWidth, all = inner.querySelectorAll("body *"), found = [];
    for (const each of inner.querySelectorAll("details")) each.open = true;
    for (const each of all) {{
      const box = each.getBoundingClientRect();
      if (box.width && (box.right > width + 0.5 || box.left < -0.5))
        found.push(each.tagName + " " + each.textContent.slice(0, 40));
    }}
    lines.push(width + " seen " + all.length + " beyond " + found.length + "; " + found.slice(0, 5).join("; "));
  }}
  document.querySelector("pre").textContent = lines.join("\\n");
}};</script></body>"""
"""A page that shows another one in frames, and counts the elements of each that are beyond it."""

FRAME = '<iframe style="width:{width}px;height:900px;border:0" srcdoc="{page}"></iframe>'
BROWSER_S_MAX = 600
"""A browser takes 15 s to start on a machine with other work."""


@pytest.mark.integration
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_t08_no_element_is_wider_than_the_screen(tmp_path: Path) -> None:
    probe = tmp_path / "probe.html"
    shown = escape(page(analysis()), quote=True)
    frames = "".join(FRAME.format(width=width, page=shown) for width in WIDTHS)
    probe.write_text(PROBE.format(frames=frames), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
    done = subprocess.run(
        [*command, "--window-size=1200,1000", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, check=False, timeout=BROWSER_S_MAX,
    )  # fmt: skip
    found = re.findall(r"^(?:.*<pre>)?(\d+) seen (\d+) beyond (\d+); (.*?)(?:</pre>.*)?$", done.stdout, re.MULTILINE)
    assert [int(width) for width, *_ in found] == list(WIDTHS), done.stderr
    assert all(int(seen) > 500 for _, seen, *_ in found)
    assert [beyond for *_, beyond, _ in found] == ["0"] * len(WIDTHS), [which for *_, which in found]


def test_t08_latencies_have_a_logarithmic_axis() -> None:
    """A bar of 1.5 ms beside one of 9 s is seen; 0 and no value have none."""
    groups: dict[str, list[float | None]] = {"accept": [1.5, 250.0, 9_000.0], "away": [0, None, 10_000.0]}
    shown = charts.grouped_bars(groups, ("half", "95 %", "99 %"), "times", duration)
    heights = [float(each) for each in re.findall(r"height='([0-9.]+)' fill='var\(--(?:one|two|three)\)'", shown)]
    decade = heights[2] - heights[0]
    assert heights[1] - heights[0] == pytest.approx(decade * math.log10(250 / 1.5) / math.log10(6_000), abs=0.2)
    assert heights[0] > 3
    assert (heights[3], heights[4]) == (0, 0)
    assert [label for label in ("1.00 ms", "10 ms", "100 ms", "1.0 s", "10.0 s") if f">{label}<" not in shown] == []


@pytest.mark.parametrize(
    ("seconds", "marks"),
    [
        (4, ["22:13:20", "22:13:21", "22:13:22", "22:13:23", "22:13:24"]),
        (2 * 3_600, ["22:30", "23:00", "23:30", "00:00"]),
        (3 * 86_400, ["15 Nov", "16 Nov", "17 Nov"]),
    ],
)
def test_t08_an_axis_of_time_has_the_time_of_the_clock(seconds: int, marks: list[str]) -> None:
    span = (START_US, START_US + seconds * 1_000_000)
    shown = charts.curves({"all": [(START_US, 1.0)]}, span, "waiting")
    assert [mark for mark in re.findall(r">([^<>]+)</text>", shown) if ":" in mark or "Nov" in mark] == marks
