"""The terminal application of `wanderbus top`, driven by Textual's pilot; no real time passes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.cli.top_states import ANN, BEN, CLEO, first, second
from wanderbus.cli.monitor.snapshot import ServerState
from wanderbus.cli.monitor.top_app import INTERRUPTED, NoticeHandler, SessionScreen, TopApp
from wanderbus.errors import NoResponse, WanderbusError

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, Input, Static
from textual.widgets._footer import FooterKey

NEVER_S = 3_600.0


class Server:
    """Answers with one state after the other; the last one again and again."""

    def __init__(self, *answers: ServerState | WanderbusError | TimeoutError) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def state(self) -> ServerState:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def played(server: Server, play: Callable[[TopApp, Pilot[str]], Coroutine[Any, Any, None]]) -> TopApp:
    """Run the application in a terminal of 80 columns while ``play`` presses keys."""

    async def run() -> TopApp:
        app = TopApp(server.state, interval_s=NEVER_S)
        async with app.run_test(size=(80, 24)) as pilot:
            await settled(app, pilot)
            await play(app, pilot)
        return app

    return asyncio.run(run())


async def settled(app: TopApp, pilot: Pilot[str]) -> None:
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


async def pressed(app: TopApp, pilot: Pilot[str], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(app, pilot)


def text(app: TopApp, name: str) -> str:
    return str(app.screen.query_one(name, Static).content)


def is_of_one_session(app: TopApp) -> bool:
    return isinstance(app.screen, SessionScreen)


def is_warned(app: TopApp) -> bool:
    return bool(app.query_one("#notice", Static).display)


def users(app: TopApp) -> list[str]:
    table = app.screen_stack[0].query_one("#sessions", DataTable)
    return [str(key.value).split()[0] for key in table.rows]


def test_rates_after_the_second_snapshot() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        assert "-/s accepted" in text(app, "#overview")
        await pressed(app, pilot, "r")
        assert "250.0/s accepted" in text(app, "#overview")
        assert "s2 DOWN" in text(app, "#overview")

    server = Server(first(), second())
    played(server, play)
    assert server.asked == 2


def test_order_by_keys() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        assert users(app) == [BEN, CLEO, ANN], "the longest queue is first"
        for key, order in (("u", [ANN, BEN, CLEO]), ("a", [ANN, BEN, CLEO]), ("w", [BEN, CLEO, ANN])):
            await pressed(app, pilot, key)
            assert users(app) == order

    played(Server(first()), play)


def test_filter_while_typing_and_back() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        await pressed(app, pilot, "slash", *"cle")
        assert users(app) == [CLEO]
        assert app.query_one("#filter", Input).display
        await pressed(app, pilot, "enter")
        assert users(app) == [CLEO]
        await pressed(app, pilot, "escape")
        assert users(app) == [BEN, CLEO, ANN]
        assert not app.query_one("#filter", Input).display

    played(Server(first()), play)


def test_one_session_and_back() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        await pressed(app, pilot, "enter")
        assert is_of_one_session(app)
        shown = text(app, "#session")
        assert "ben@x" in shown
        assert "1 subscription: 0 matches" in shown
        assert "device d-1 DISCONNECTED for 30.0 s" in shown
        await pressed(app, pilot, "u")
        await pressed(app, pilot, "escape")
        assert not is_of_one_session(app)
        assert users(app) == [BEN, CLEO, ANN], "the keys of the table did nothing meanwhile"

    played(Server(first()), play)


def test_session_that_ends_while_it_is_shown() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        await pressed(app, pilot, "enter")
        app.action_refresh_now()
        await settled(app, pilot)
        assert "does not have this session any more" in text(app, "#session")

    after = second()
    played(Server(first(), type(after)(after.at_us, after.process)), play)


def test_cursor_stays_at_its_session() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        await pressed(app, pilot, "down")
        table = app.query_one("#sessions", DataTable)
        assert table.cursor_row == 1
        await pressed(app, pilot, "r")
        assert users(app)[table.cursor_row] == CLEO
        assert table.cursor_row == 0, "cleo's queue is the longest now"

    played(Server(first(), second()), play)


@pytest.mark.parametrize("error", [NoResponse("the server is away"), TimeoutError()])
def test_server_that_does_not_answer_for_a_while(error: WanderbusError | TimeoutError) -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        await pressed(app, pilot, "r")
        assert is_warned(app)
        assert "answer" in text(app, "#notice") or "away" in text(app, "#notice")
        assert users(app) == [BEN, CLEO, ANN], "the old figures stay"
        await pressed(app, pilot, "r")
        assert not is_warned(app)
        assert "250.0/s accepted" in text(app, "#overview")

    played(Server(first(), error, second()), play)


def test_server_that_is_slower_than_the_interval() -> None:
    class SlowServer(Server):
        may_answer = asyncio.Event()

        async def state(self) -> ServerState:
            state = await super().state()
            if self.asked > 1:
                await self.may_answer.wait()
            return state

    server = SlowServer(first(), second())

    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        await pilot.press("r", "r", "r")
        await pilot.pause()
        assert server.asked == 2, "one snapshot at a time"
        server.may_answer.set()
        await settled(app, pilot)
        assert "250.0/s accepted" in text(app, "#overview")

    played(server, play)


def test_warning_of_the_log() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        handler = NoticeHandler(app)
        handler.handle(logging.LogRecord("wanderbus", logging.WARNING, "", 0, "cannot reach \x1b[2J", None, None))
        assert "cannot reach \\u001b" in str(app.query_one("#notice", Static).content)

    played(Server(first()), play)


def test_ends_by_q_and_by_an_interrupt() -> None:
    async def quit_it(app: TopApp, pilot: Pilot[str]) -> None:
        await pilot.press("q")

    async def interrupt_it(app: TopApp, pilot: Pilot[str]) -> None:
        await pilot.press("ctrl+c")

    assert played(Server(first()), quit_it).return_value is None
    assert played(Server(first()), interrupt_it).return_value == INTERRUPTED


def test_keys_of_a_narrow_terminal_are_all_shown() -> None:
    async def play(app: TopApp, pilot: Pilot[str]) -> None:
        assert app.screen.query_one(Footer).max_scroll_x == 0
        keys = {each.description for each in app.screen.query("FooterKey").results(FooterKey)}
        assert keys >= {"Quit", "Filter", "Waiting", "User"}
        await pressed(app, pilot, "enter")
        assert {each.description for each in app.screen.query("FooterKey").results(FooterKey)} == {"Quit", "Back"}

    played(Server(first()), play)
