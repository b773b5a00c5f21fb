"""``wanderbus pipeline serve``: history from the lake, for subscriptions that begin in the past (SPEC T-05)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import log_to_stderr, print_json, print_line, run_async
from wanderbus.errors import ConfigurationError


def serve(
    data_dir: Annotated[Path, typer.Argument(help="Data directory of the server.", show_default=False)],
    lake: Annotated[Path, typer.Option("--lake", help="Directory of the lake.", show_default=False)],
    json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
) -> None:
    """Answer a server from the lake, for subscriptions since a time that its log no longer has.

    Prints "ready SOCKET". Server and service may be started and ended in any order; subscriptions that read the lake
    wait for the service. The lake may grow meanwhile. Ends on SIGINT or SIGTERM.

    Example: wanderbus pipeline serve wanderbus-data --lake lake
    """
    log_to_stderr(verbose=verbose)
    if not lake.is_dir():
        raise ConfigurationError(f"{lake} is not a directory; give --lake the directory of a lake")
    run_async(_serve(data_dir, lake, json=json))


async def _serve(data_dir: Path, lake: Path, *, json: bool) -> None:
    try:
        from wanderbus.pipeline.replay import history_service
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the lake needs further packages, and {error.name} is not installed: pip install 'wanderbus[pipeline]'"
        ) from None
    with history_service(data_dir, lake) as service:
        if json:
            print_json({"ready": str(service.path)})
        else:
            print_line(f"ready {service.path}")
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
