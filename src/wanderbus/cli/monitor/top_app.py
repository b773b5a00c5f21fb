"""The terminal application of ``wanderbus top``, on Textual; what it shows comes from :mod:`.top_model`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from wanderbus.cli.monitor.snapshot import ServerState
from wanderbus.cli.monitor.top_lines import HEADING, WIDTH, overview_lines, row_line
from wanderbus.cli.monitor.top_model import SORTS, SessionRow, View, selected, view_of
from wanderbus.cli.operator.listings import session_details
from wanderbus.cli.output import counted
from wanderbus.errors import WanderbusError
from wanderbus.event_text import escaped

Source = Callable[[], Awaitable[ServerState]]
"""Asks the server for its state; raises :class:`WanderbusError` or TimeoutError if it does not answer."""

INTERRUPTED: Final = "interrupted"
"""Result of the application if Ctrl-C ended it."""

ROWS_SHOWN_MAX: Final = 1_000
"""Most sessions in the table: nobody reads more, and each costs time in every interval."""


class SessionScreen(Screen[None]):
    """One session: its figures, its devices, and what is not read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,backspace", "app.pop_screen", "Back"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield Static(id="session")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show what is known already."""
        self.show()

    def show(self) -> None:
        """Show the present state of the session."""
        app = self.app
        assert isinstance(app, TopApp)
        self.query_one("#session", Static).update(Text(app.session_text(self.key)))


class TopApp(App[str]):
    """Table of the sessions below the figures of the server; refreshed every ``interval_s``."""

    CSS = """
    #overview { height: auto; margin-bottom: 1; color: $text; }
    #notice { height: auto; color: $error; display: none; }
    #filter { height: 1; border: none; padding: 0; display: none; }
    DataTable { height: 1fr; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("w", "order('waiting')", "Waiting"),
        Binding("o", "order('oldest')", "Oldest"),
        Binding("d", "order('delivered')", "Delivered"),
        Binding("x", "order('dropped')", "Dropped"),
        Binding("a", "order('acknowledged')", "Ack"),
        Binding("h", "order('healed')", "Healed"),
        Binding("u", "order('user')", "User"),
        Binding("r", "refresh_now", "Refresh", show=False),
        Binding("escape", "unfilter", show=False),
    ]

    def __init__(self, source: Source, *, interval_s: float, order: str = SORTS[0]) -> None:
        super().__init__()
        self._source = source
        self._interval_s = interval_s
        self._order = order
        self._filter = ""
        self._before: ServerState | None = None
        self._now: ServerState | None = None
        self._view: View | None = None

    def compose(self) -> ComposeResult:
        """Yield the widgets, from the top."""
        yield Static(id="overview")
        yield Static(id="notice")
        yield Input(placeholder="user, session or status", id="filter", compact=True)
        table: DataTable[Text] = DataTable(cursor_type="row", cell_padding=0, id="sessions")
        yield table
        yield Footer(compact=True)

    async def on_mount(self) -> None:
        """Show the first snapshot, and begin to repeat it."""
        table = self._table()
        table.add_column(self._heading(), width=WIDTH, key="line")
        table.focus()
        self.set_interval(self._interval_s, self.action_refresh_now)
        self.call_after_refresh(self.action_refresh_now)

    def action_refresh_now(self) -> None:
        """Take a snapshot, unless one is being taken."""
        if not any(worker.group == "snapshot" and worker.is_running for worker in self.workers):
            self.run_worker(self._take(), group="snapshot")

    async def _take(self) -> None:
        try:
            state = await self._source()
        except WanderbusError as error:
            self.notice(str(error))
            return
        except TimeoutError:
            self.notice("the server does not answer; these figures are old")
            return
        self.notice("")
        self._before, self._now = self._now, state
        self._view = view_of(state, self._before)
        self.show()

    def notice(self, text: str) -> None:
        """Show a line about trouble, none if it is empty."""
        line = self.screen_stack[0].query_one("#notice", Static)
        line.display = bool(text)
        line.update(Text(escaped(text)))

    def show(self) -> None:
        """Show the last snapshot, in the present order; the cursor stays at its session."""
        view = self._view
        if view is None:
            return
        self.screen_stack[0].query_one("#overview", Static).update(Text("\n".join(overview_lines(view.overview))))
        table = self._table()
        at = self._key_at_cursor()
        rows = selected(view.sessions, self._order, self._filter)[:ROWS_SHOWN_MAX]
        table.clear()
        for row in rows:
            table.add_row(_styled(row), key=row.key)
        table.columns[next(iter(table.columns))].label = self._heading()
        if at is not None and at in {row.key for row in rows}:
            table.move_cursor(row=table.get_row_index(at))
        for screen in self.screen_stack:
            if isinstance(screen, SessionScreen):
                screen.show()

    def session_text(self, key: str) -> str:
        """Return the text about one session, in the last snapshot and with its rates."""
        now, view = self._now, self._view
        if now is None or view is None:
            return ""
        line = next((row_line(row) for row in view.sessions if row.key == key), None)
        row = next((each for each in now.sessions if f"{each.user} {each.session}" == key), None)
        if line is None or row is None:
            return f"{escaped(key)}\n\nThe server does not have this session any more."
        counts = (
            f"{counted(row.subscriptions, 'subscription')}: {row.generated:,} matches, {row.delivered:,} delivered, "
            f"{sum(row.dropped.values()):,} dropped"
        )
        return "\n".join([HEADING, line, "", counts, *session_details(row)])

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is possible: those of the table are not while one session is shown."""
        return action not in ("order", "filter", "unfilter") or not isinstance(self.screen, SessionScreen)

    def action_order(self, order: str) -> None:
        """Sort by another column."""
        self._order = order
        self.show()

    def action_filter(self) -> None:
        """Ask for the text by which sessions are filtered."""
        line = self.query_one("#filter", Input)
        line.display = True
        line.focus()

    def action_unfilter(self) -> None:
        """Show all sessions again."""
        line = self.query_one("#filter", Input)
        line.value, line.display = "", False
        self._table().focus()

    def action_interrupt(self) -> None:
        """End as other commands do after Ctrl-C."""
        self.exit(INTERRUPTED)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while somebody types."""
        self._filter = event.value
        self.show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Return to the table; the filter stays."""
        event.input.display = bool(event.value)
        self._table().focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show one session."""
        if event.row_key.value is not None:
            self.push_screen(SessionScreen(event.row_key.value))

    def _table(self) -> DataTable[Text]:
        table: DataTable[Text] = self.screen_stack[0].query_one("#sessions", DataTable)
        return table

    def _key_at_cursor(self) -> str | None:
        table = self._table()
        if not table.is_valid_row_index(table.cursor_row):
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def _heading(self) -> Text:
        """Return the headings, with that of the order underlined."""
        heading = Text(HEADING)
        word = {"delivered": "deliv./s", "dropped": "drop/s", "acknowledged": "ack ms", "healed": ""}
        if name := word.get(self._order, self._order):
            heading.highlight_words([name], "underline")
        return heading


class NoticeHandler(logging.Handler):
    """Shows warnings of the log in the application: on standard error they would destroy its picture."""

    def __init__(self, app: TopApp) -> None:
        super().__init__(logging.WARNING)
        self._app = app

    def emit(self, record: logging.LogRecord) -> None:
        """Show the message of a record."""
        if self._app.is_running:
            self._app.notice(record.getMessage())


def _styled(row: SessionRow) -> Text:
    style = "dim" if row.status != "CONNECTED" else "bold red" if row.dropped_per_s else ""
    return Text(row_line(row), style)
