"""``wanderbus up``: the server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.api.server import Server
from wanderbus.cli.output import log_to_stderr, run_async, say, say_json
from wanderbus.runtime.server_files import read_users


def up(
    users: Annotated[Path, typer.Option(help="File of name:password lines.", show_default=False)],
    data: Annotated[Path, typer.Option(help="Directory of log and state; made if need be.")] = Path("wanderbus-data"),
    host: Annotated[str, typer.Option(help="IP address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="UDP port of SIP; 0 takes a free one.")] = 5060,
    domain: Annotated[str, typer.Option(help="SIP domain to serve.")] = "localhost",
    json: Annotated[bool, typer.Option("--json", help="Print the ready line as JSON.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
) -> None:
    """Run a server: SIP registrar and proxy, broker, event log.

    Prints "ready sip:HOST:PORT" when agents can connect. Ends at SIGINT or SIGTERM; killing it loses nothing.

    Example: wanderbus up --users users.txt --domain example.org --host 192.0.2.1
    """
    log_to_stderr(verbose=verbose)
    run_async(_serve(Server(domain=domain, data_dir=data, users=read_users(users), host=host, port=port), json))


async def _serve(server: Server, json: bool) -> None:
    """Serve until a signal or a broken disk; a signal is the ordinary end."""
    loop = asyncio.get_running_loop()
    async with server:
        running = loop.create_task(server.run())
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, running.cancel)
        place = f"sip:{server.address[0]}:{server.address[1]}"
        if json:
            say_json({"ready": place, "broker": server.broker_uri})
        else:
            say(f"ready {place}")
        with contextlib.suppress(asyncio.CancelledError):
            await running
