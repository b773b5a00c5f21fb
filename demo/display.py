"""Display of a run: a live table on a terminal, plain lines elsewhere, with output at least every two seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.html_plots import name_of
from demo.verdict import ENGINE_NAMES, headline

HEARTBEAT_S: Final = 1.5
"""Longest planned_end of the plain form."""

COLUMNS: Final = 80
"""Width of the output without a terminal; every table fits into it."""

HEADING_EVERY: Final = 15
"""Lines of counters under one heading, in the plain form."""

STEPS: Final = ("set up", "publish", "last deliveries", "count and analyse with Spark")

_COLOURS: Final = {"CONNECTED": "green", "DISCONNECTED": "yellow", "off": "red", "killed": "bold red"}
_PLAIN: Final = "{:>6.1f} s  {:>11}  {:>11}  {:>6}  {:<14}  {}"
_PLAIN_HEADING: Final = f"{'time':>8}  {'published':>11}  {'delivered':>11}  {'lake':>6}  {'server':<14}  away"


@dataclass
class TravellerState:
    """One traveller, as displayed."""

    name: str
    address: str = ""
    status: str = "starting"
    expected: int = 0
    taken: int = 0
    moves: int = 0


@dataclass
class RunState:
    """The run, as displayed; the run writes it, the display reads it."""

    events: int = 0
    """Number of events to publish."""
    step: int = 1
    """Number of the present one of :data:`STEPS`, from 1."""
    phase: str = "starting"
    published: int = 0
    server: str = "starting"
    server_dead_since: float | None = None
    """Time at which the server was killed, on the monotonic clock, until it is ready again."""
    spark: str = "starting"
    spark_lag: int | None = None
    """Records of the log that Spark has not matched yet; None before its first batch."""
    lake_records: int = 0
    """Records of the log that the lake has."""
    travellers: dict[str, TravellerState] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    phase_began: float = field(default_factory=time.monotonic)

    @property
    def taken(self) -> int:
        """Notifications committed by all travellers."""
        return sum(traveller.taken for traveller in self.travellers.values())

    @property
    def expected(self) -> int:
        """Notifications due to all travellers."""
        return sum(traveller.expected for traveller in self.travellers.values())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began

    @property
    def server_status(self) -> str:
        """Return the server's state, with its duration while the server is dead."""
        if self.server_dead_since is None:
            return self.server
        return f"DEAD for {time.monotonic() - self.server_dead_since:.1f} s"


class Display:
    """Display of a run. :meth:`news` prints an event of the run, :meth:`beat` a sign that the run continues."""

    def __init__(self, state: RunState, console: Console | None = None) -> None:
        self.state = state
        self.console = console or Console(highlight=False)
        self.live = self.console.is_terminal
        if not self.live:
            self.console.width = COLUMNS
        self._spoke = 0.0
        self._counters = 0

    def showing(self) -> AbstractContextManager[object]:
        """Return the context during which the live table is on the screen; without a terminal it does nothing."""
        if not self.live:
            return nullcontext()
        return Live(get_renderable=self.render, console=self.console, refresh_per_second=4, transient=True)

    def phase(self, text: str, step: int | None = None) -> None:
        """Begin a phase, perhaps of another step, and print it."""
        self.state.phase, self.state.phase_began = text, time.monotonic()
        self.state.step = step or self.state.step
        self.news(f"step {self.state.step} of {len(STEPS)}: {text}")

    def news(self, text: str) -> None:
        """Print an event of the run, with the time since the start."""
        self._spoke = time.monotonic()
        self.console.print(f"{self.state.elapsed_s:6.1f} s  {text}", markup=False, soft_wrap=True)

    def beat(self) -> None:
        """Print one line if the plain form has printed nothing for :data:`HEARTBEAT_S`: the counters if there
        are any.
        """
        if self.live or time.monotonic() - self._spoke < HEARTBEAT_S:
            return
        state = self.state
        is_delivered = state.published >= state.events and state.taken >= state.expected
        if not state.published or is_delivered or state.step == len(STEPS):
            self.news(f"… {state.phase}, {time.monotonic() - state.phase_began:.0f} s")
            return
        if self._counters % HEADING_EVERY == 0:
            self.console.print(_PLAIN_HEADING, markup=False)
        self._counters += 1
        absent = ", ".join(traveller.name for traveller in state.travellers.values() if traveller.status != "CONNECTED")
        published, delivered = f"{state.published}/{state.events}", f"{state.taken}/{state.expected}"
        line = _PLAIN.format(state.elapsed_s, published, delivered, state.lake_records, state.server_status, absent)
        self._spoke = time.monotonic()
        self.console.print(line.rstrip(), markup=False, soft_wrap=True)

    def render(self) -> Group:
        """Return the live table as it is now."""
        state = self.state
        table = Table(box=None, padding=(0, 1), header_style="bold underline")
        for heading in ("traveller", "status", "address"):
            table.add_column(heading, no_wrap=True)
        for heading in ("delivered", "expected", "moves"):
            table.add_column(heading, justify="right", no_wrap=True)
        for traveller in state.travellers.values():
            status = Text(traveller.status, style=_COLOURS.get(traveller.status, "dim"))
            table.add_row(
                traveller.name,
                status,
                traveller.address,
                str(traveller.taken),
                str(traveller.expected),
                str(traveller.moves),
            )
        dead = state.server_dead_since is not None
        step = Text.assemble(
            (f" {state.elapsed_s:5.1f} s  ", "bold"), f"step {state.step} of {len(STEPS)}: {state.phase}"
        )
        server = Text.assemble(" server ", (state.server_status, "bold white on red" if dead else "green"))
        spark = Text.assemble(" Spark  ", (state.spark, "green"), f", the lake has {state.lake_records} records")
        return Group(step, server, spark, self._progress(), table)

    def _progress(self) -> Table:
        """Return the bar of the present step: published, then delivered events; otherwise the elapsed time."""
        state = self.state
        counted = {2: (state.published, state.events, "published"), 3: (state.taken, state.expected, "delivered")}
        line = Table.grid(padding=(0, 1))
        if state.step in counted:
            done, total, what = counted[state.step]
            bar, text = ProgressBar(total=total, completed=done, width=48), f"{done} of {total} {what}"
        else:
            elapsed_s = time.monotonic() - state.phase_began
            bar, text = ProgressBar(pulse=True, width=48, animation_time=elapsed_s), f"{elapsed_s:.0f} s"
        line.add_row("", bar, text)
        return line


def summary(result: Mapping[str, Any]) -> Group:
    """Return the first lines of the result: the verdict, and four numbers with their captions."""
    tone = "bold green" if result["good"] else "bold red"
    tiles = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    numbers = headline(result)
    for _ in numbers:
        tiles.add_column(justify="left", width=17)
    tiles.add_row(*(Text(str(each.number), style="bold" if each.good else "bold red") for each in numbers))
    tiles.add_row(*(Text(each.caption, style="dim") for each in numbers))
    return Group(Text("GOOD" if result["good"] else "NOT GOOD", style=tone), "", tiles)


def result_table(result: Mapping[str, Any]) -> Table:
    """Return the result as a table: a line for each traveller with a difference, one for the others together."""
    lines = result["travellers"]
    wrong = [line for line in lines if not line["good"]]
    right = [line for line in lines if line["good"]]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("traveller", no_wrap=True)
    for heading in ("expected", "delivered", "lost", "repeated", "out of\norder", "away", "healing, ms\np50/p95/max"):
        table.add_column(heading, justify="right", no_wrap=True)
    unexpected = any(line["unexpected"] for line in wrong)
    if unexpected:
        table.add_column("not\ndue", justify="right", no_wrap=True)
    for line in wrong:
        more = [str(line["unexpected"])] if unexpected else []
        table.add_row(name_of(line["user"]), *_numbers(line), *more, style="red")
    if right:
        title = f"{'other ' if wrong else 'all '}{len(right)}: good"
        total = {key: sum(line[key] for line in right) for key in _SUMMED}
        # The percentiles are known only for all travellers together.
        nothing: dict[str, float | None] = dict.fromkeys(("p50", "p95", "max"))
        table.add_row(title, *_numbers({**total, "healing_ms": nothing if wrong else result["healing_ms"]}))
    return table


def latency_table(result: Mapping[str, Any]) -> Table:
    """Return a line for each subject: the engine that matched it, and its latency from publishing to committing."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for heading in ("subject", "matched by"):
        table.add_column(heading, no_wrap=True)
    for heading in ("delivered", "latency, ms\np50/p95/max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in result["subjects"]:
        table.add_row(line["subject"], ENGINE_NAMES[line["engine"]], str(line["takings"]), _three(line["latency_ms"]))
    return table


_SUMMED: Final = ("expected", "delivered", "lost", "repeated", "out_of_order", "away_s")


def _numbers(line: Mapping[str, Any]) -> Iterable[str]:
    yield from (str(line[key]) for key in ("expected", "delivered", "lost", "repeated", "out_of_order"))
    yield f"{line['away_s']:.1f} s"
    yield _three(line["healing_ms"])


def _three(times_ms: Mapping[str, float | None]) -> str:
    """Return three percentiles as a text, or a dash if there are none."""
    values = [times_ms[name] for name in ("p50", "p95", "max")]
    return "—" if None in values else "/".join(f"{value:.0f}" for value in values)
