"""``wanderbus top``: what a server does now, refreshed every few seconds."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting
from wanderbus.cli.monitor.snapshot import ServerState, state_of
from wanderbus.cli.monitor.top_lines import text_of
from wanderbus.cli.monitor.top_model import SORTS, View, selected, view_of
from wanderbus.cli.output import EndedBySignal, print_json, print_lines, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, NoResponse, WanderbusError

if TYPE_CHECKING:
    from wanderbus.cli.monitor.top_app import TopApp

ANSWER_S_MAX: Final = 10.0
"""Longest wait for the answers of one snapshot."""


@visiting
def top(
    *,
    connection: ConnectionOptions,
    interval_s: Annotated[
        float, typer.Option("--interval-s", min=1.0, max=3_600, metavar="SECONDS", help="Pause between two snapshots.")
    ] = 2.0,
    sort: Annotated[str, typer.Option("--sort", help=f"Order of the sessions: {', '.join(SORTS)}.")] = SORTS[0],
    filter: Annotated[
        str, typer.Option("--filter", help="Only sessions with this text in their user, name or status; with --once.")
    ] = "",
    once: Annotated[
        bool, typer.Option("--once", help="Print one table, with the rates of one interval, and end.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show what a server does: events and deliveries a second, the longest queues, the slowest readers, links and lag.

    Needs the role of operator, and a terminal unless --once is given. Keys: w, o, d, x, a, h and u sort by what waits,
    the oldest, delivered, dropped, the time until an acknowledgement, who came back, and users; / filters; Enter shows
    one session, Escape goes back; q ends.

    Example: wanderbus top --user sip:olga@localhost

    Example: wanderbus top --once --json --user sip:olga@localhost
    """
    if sort not in SORTS:
        raise ConfigurationError(f"--sort: invalid value {sort!r} (expected {', '.join(SORTS)})")
    if once:
        view = run_async(_once(connection, interval_s))
        if json:
            print_json({"at_us": view.at_us, **_json(view, sort, filter)})
        else:
            print_lines(text_of(view, sort, filter))
        return
    if json or filter:
        raise ConfigurationError(f"{'--json' if json else '--filter'} goes with --once")
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise ConfigurationError("input, output or errors are no terminal; give --once for one table")
    try:
        from wanderbus.cli.monitor import top_app
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"this command needs a package that is not installed ({error.name}): pip install 'wanderbus[top]'; "
            "--once works without"
        ) from None
    if run_async(_watch(connection, interval_s, sort)) == top_app.INTERRUPTED:
        raise EndedBySignal(signal.SIGINT)


def _json(view: View, sort: str, filter: str) -> dict[str, object]:
    return {"overview": view.overview, "sessions": selected(view.sessions, sort, filter)}


async def _once(connection: ConnectionOptions, interval_s: float) -> View:
    async with connection.visitor() as agent:
        before = await answered(agent.operator)
        await asyncio.sleep(interval_s)
        return view_of(await answered(agent.operator), before)


async def answered(operator: Operator) -> ServerState:
    """Return the state of a server; :class:`NoResponse` if it has not answered within :data:`ANSWER_S_MAX`."""
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await state_of(operator)
    except WanderbusError:
        raise
    except TimeoutError:
        raise NoResponse(f"the server has not answered for {ANSWER_S_MAX:g} s; see whether it runs") from None


async def _watch(connection: ConnectionOptions, interval_s: float, sort: str) -> str | None:
    from wanderbus.cli.monitor.top_app import NoticeHandler, TopApp

    async with connection.visitor() as agent:
        await answered(agent.operator)  # whoever may not ask gets one line, and no picture
        app: TopApp = TopApp(lambda: answered(agent.operator), interval_s=interval_s, order=sort)
        log = logging.getLogger()
        handlers = log.handlers[:]
        log.handlers[:] = [NoticeHandler(app)]
        try:
            result = await app.run_async()
        finally:
            log.handlers[:] = handlers
    # The application ends when its task is cancelled, and returns as if a key had ended it.
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError
    return result
