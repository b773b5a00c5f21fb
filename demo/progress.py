"""What the run shows while it runs: a live table on a terminal, plain lines elsewhere, never two silent seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

HEARTBEAT_S: Final = 1.5
"""Longest silence of the plain form."""

PLAIN_COLUMNS: Final = 130
"""Width of tables where there is no terminal to ask."""

_COLOURS: Final = {"CONNECTED": "green", "DISCONNECTED": "yellow", "off": "red", "killed": "bold red"}


@dataclass
class SeatView:
    """What is shown of one traveller."""

    name: str
    address: str = ""
    status: str = "starting"
    expected: int = 0
    taken: int = 0
    moves: int = 0


@dataclass
class Scene:
    """What is shown of the run; the conductor writes it, the board reads it."""

    rows: int
    phase: str = "starting"
    published: int = 0
    server: str = "starting"
    seats: dict[str, SeatView] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def taken(self) -> int:
        """Notifications committed by all travellers."""
        return sum(seat.taken for seat in self.seats.values())

    @property
    def expected(self) -> int:
        """Notifications due to all travellers."""
        return sum(seat.expected for seat in self.seats.values())

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.began


class Board:
    """Shows a scene. :meth:`news` tells of something that happened, :meth:`beat` that the run is alive."""

    def __init__(self, scene: Scene, console: Console | None = None) -> None:
        self.scene = scene
        self.console = console or Console(highlight=False)
        self.live = self.console.is_terminal
        if not self.live:
            self.console.width = PLAIN_COLUMNS
        self._spoke = 0.0

    def showing(self) -> AbstractContextManager[object]:
        """Return the context during which the live table is on the screen; nothing where there is no terminal."""
        if not self.live:
            return nullcontext()
        return Live(get_renderable=self.render, console=self.console, refresh_per_second=4, transient=True)

    def phase(self, text: str) -> None:
        """Begin a phase and say so."""
        self.scene.phase = text
        self.news(text)

    def news(self, text: str) -> None:
        """Say that something happened, with the time since the start."""
        self._spoke = time.monotonic()
        self.console.print(f"{self.scene.elapsed_s:6.1f} s  {text}", markup=False, soft_wrap=True)

    def beat(self) -> None:
        """Print one line of counters if the plain form has been silent for :data:`HEARTBEAT_S`."""
        if not self.live and time.monotonic() - self._spoke >= HEARTBEAT_S:
            self.news(f"… {self.scene.phase}{self._counters()}")

    def _counters(self) -> str:
        scene = self.scene
        if not scene.published or (scene.published >= scene.rows and scene.taken >= scene.expected):
            return ""
        absent = [seat.name for seat in scene.seats.values() if seat.status != "CONNECTED"]
        away = f", away: {', '.join(absent)}" if absent else ""
        return f": published {scene.published}/{scene.rows}, delivered {scene.taken}/{scene.expected}{away}"

    def render(self) -> Group:
        """Return the live table as it is now."""
        scene = self.scene
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for heading in ("traveller", "status", "address"):
            table.add_column(heading, no_wrap=True)
        for heading in ("expected", "delivered", "moves"):
            table.add_column(heading, justify="right", no_wrap=True)
        for seat in scene.seats.values():
            status = Text(seat.status, style=_COLOURS.get(seat.status, "dim"))
            table.add_row(seat.name, status, seat.address, str(seat.expected), str(seat.taken), str(seat.moves))
        title = Text.assemble(
            (f"{scene.elapsed_s:5.1f} s  ", "bold"),
            f"{scene.phase}   server: {scene.server}   published {scene.published}/{scene.rows}",
        )
        return Group(title, ProgressBar(total=scene.rows, completed=scene.published, width=72), table)


def result_table(result: dict[str, Any]) -> Table:
    """Return the reckoning as a table: a line per traveller, and one for all."""
    table = Table(title="What each traveller was due, and got", title_justify="left")
    table.add_column("traveller", no_wrap=True)
    for heading in ("expected", "delivered", "lost", "repeated", "out of order", "time away", "healing p50/p95/max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in result["travellers"]:
        table.add_row(line["user"], *_numbers(line))
    total = {
        key: sum(line[key] for line in result["travellers"])
        for key in ("expected", "delivered", "lost", "repeated", "out_of_order", "away_s")
    }
    table.add_section()
    table.add_row("all", *_numbers({**total, "healing_ms": result["healing_ms"]}), style="bold")
    return table


def _numbers(line: dict[str, Any]) -> Iterable[str]:
    healing = [line["healing_ms"][name] for name in ("p50", "p95", "max")]
    yield from (str(line[key]) for key in ("expected", "delivered", "lost", "repeated", "out_of_order"))
    yield f"{line['away_s']:.1f} s"
    yield "—" if healing[0] is None else "/".join(f"{value:.0f}" for value in healing) + " ms"
