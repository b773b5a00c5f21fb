"""``wanderbus bench``: rates, round trips, latencies and gaps of a server, measured from this computer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import typer

from wanderbus.cli.bench.figures import BenchFigures, figures_of
from wanderbus.cli.bench.load import Bench, Load, Mover, bench_agents, repeated
from wanderbus.cli.connection_options import AsJson, ConnectionOptions, connected
from wanderbus.cli.output import print_error, print_json, print_line, print_progress, print_progress_json, run_async
from wanderbus.cli.pipeline.progress_lines import PROGRESS_EACH_S
from wanderbus.errors import WanderbusError
from wanderbus.event import Event, check_event

app = typer.Typer(help="Measure a server: rates, round trips, latencies and gaps.", no_args_is_help=True)

SUBJECT: Final = "wanderbus.bench"
EVENTS_MAX: Final = 10_000_000
AGENTS_MAX: Final = 32
"""Most publishers, and most subscribers: a session has at most so many devices, unless the server allows more."""

IN_FLIGHT_MAX: Final = 4_096
_MOVE_RATE_PER_S: Final = 200.0

Events = Annotated[int, typer.Option("--events", min=1, max=EVENTS_MAX, help="Number of events to publish.")]
Size = Annotated[
    int, typer.Option("--size", min=0, max=16 * 2**20, help="Bytes of the payload, one attribute of each event.")
]
Publishers = Annotated[
    int,
    typer.Option("--publishers", min=1, max=AGENTS_MAX, help="Number of agents that publish; they share the events."),
]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.01,
        max=1e6,
        help="Events a second, of all publishers together.",
        show_default="as fast as the server accepts them",
    ),
]
InFlight = Annotated[
    int,
    typer.Option("--in-flight", min=1, max=IN_FLIGHT_MAX, help="Events of a publisher that may wait for their answer."),
]
SubjectName = Annotated[str, typer.Option("--subject", help="Subject of the events; no others should use it.")]
Limit = Annotated[
    float,
    typer.Option("--limit-s", min=0.5, max=86_400, metavar="SECONDS", help="Longest time; what was measured is shown."),
]


@app.callback()
def _options() -> None:
    """Measure a server: rates, round trips, latencies and gaps.

    Publishers and subscribers run in this one process, which may be slower than the server: start several of these
    commands for more load. Their events are stored in the log of the server as all others.
    """


@app.command("pub")
@connected
def pub(
    *,
    connection: ConnectionOptions,
    events: Events = 10_000,
    size: Size = 128,
    publishers: Publishers = 1,
    rate: Rate = None,
    in_flight: InFlight = 256,
    subject: SubjectName = SUBJECT,
    limit_s: Limit = 60.0,
    json: AsJson = False,
) -> None:
    """Measure how fast the server accepts events; an event is accepted once it is on its disk.

    Exit status 1 if the time was too short.

    Example: wanderbus bench pub --events 50000 --publishers 4 --user sip:alice@localhost
    """
    load = Load(
        events=events,
        size_bytes=size,
        subject=subject,
        publishers=publishers,
        rate_per_s=rate,
        in_flight=in_flight,
        limit_s=limit_s,
    )
    _run("pub", connection, load, _published, as_json=json)


@app.command("sub")
@connected
def sub(
    *,
    connection: ConnectionOptions,
    events: Events = 10_000,
    size: Size = 128,
    publishers: Publishers = 1,
    subscribers: Annotated[
        int,
        typer.Option(
            "--subscribers", min=1, max=AGENTS_MAX, help="Number of agents that subscribe; each gets all events."
        ),
    ] = 1,
    rate: Rate = None,
    in_flight: InFlight = 256,
    subject: SubjectName = SUBJECT,
    limit_s: Limit = 60.0,
    json: AsJson = False,
) -> None:
    """Measure how long events take from a publisher to the subscribers, and how fast they arrive.

    Without --rate the publishers are as fast as the server accepts events; then the latency is mostly the time for
    which events wait in queues. Exit status 1 if the time was too short, or an event was lost, repeated or out of
    order.

    Example: wanderbus bench sub --subscribers 8 --rate 500 --events 5000 --user sip:alice@localhost
    """
    load = Load(
        events=events,
        size_bytes=size,
        subject=subject,
        publishers=publishers,
        subscribers=subscribers,
        rate_per_s=rate,
        in_flight=in_flight,
        limit_s=limit_s,
    )
    _run("sub", connection, load, _delivered, as_json=json)


@app.command("request")
@connected
def request(
    *,
    connection: ConnectionOptions,
    events: Events = 1_000,
    size: Size = 128,
    publishers: Publishers = 1,
    rate: Rate = None,
    subject: SubjectName = SUBJECT,
    limit_s: Limit = 60.0,
    json: AsJson = False,
) -> None:
    """Measure round trips: each publisher waits until the server has accepted its event, then publishes the next.

    Exit status 1 if the time was too short.

    Example: wanderbus bench request --events 1000 --json --user sip:alice@localhost
    """
    load = Load(
        events=events, size_bytes=size, subject=subject, publishers=publishers, rate_per_s=rate, limit_s=limit_s
    )
    _run("request", connection, load, _published, as_json=json)


@app.command("move")
@connected
def move(
    *,
    connection: ConnectionOptions,
    moves: Annotated[int, typer.Option("--moves", min=1, max=10_000, help="Number of moves.")] = 10,
    address: Annotated[
        list[str] | None,
        typer.Option(
            "--address",
            help="Local IP address to move to; given several times, they are taken in turn.",
            show_default="only the port changes; on loopback, 127.0.0.2 and 127.0.0.1 in turn",
        ),
    ] = None,
    pause_s: Annotated[
        float, typer.Option("--pause-s", min=0.0, max=3_600, metavar="SECONDS", help="Pause between two moves.")
    ] = 0.5,
    size: Size = 128,
    rate: Annotated[float, typer.Option("--rate", min=0.01, max=10_000, help="Events a second.")] = _MOVE_RATE_PER_S,
    subject: SubjectName = SUBJECT,
    limit_s: Limit = 60.0,
    json: AsJson = False,
) -> None:
    """Measure the gaps of a subscriber that moves: its address, or its port, changes while events flow to it.

    A gap is the longest pause between two events from one move to the next; without moves it would be 1 / rate. The
    subscriber has to be at its address for the next move to begin. Exit status 1 if the time was too short, or an event
    was lost, repeated or out of order.

    Example: wanderbus bench move --moves 20 --user sip:alice@localhost

    Example: wanderbus bench move --address 192.0.2.7 --address 198.51.100.7 --user sip:alice@localhost
    """
    # The number of events follows from the moves; the publisher stops with the last of them.
    most = min(EVENTS_MAX, max(1, int(rate * limit_s)))
    load = Load(
        events=most, size_bytes=size, subject=subject, subscribers=1, rate_per_s=rate, in_flight=256, limit_s=limit_s
    )

    async def moved(bench: Bench) -> None:
        async with bench.subscribed():
            publishing = asyncio.create_task(bench.publish())
            try:
                mover = Mover(bench.subscribers[0], address or bench.addresses, bench.recorded)
                moving = asyncio.create_task(mover.move(moves, pause_s))
                await asyncio.wait([publishing, moving], return_when=asyncio.FIRST_COMPLETED)
                if publishing.done():
                    publishing.result()
                await moving
                bench.stop_publishing()
                await publishing
            finally:
                for task in (publishing, moving):
                    task.cancel()
            await bench.arrived()

    _run("move", connection, load, moved, as_json=json)


async def _published(bench: Bench) -> None:
    await bench.publish()


async def _delivered(bench: Bench) -> None:
    async with bench.subscribed():
        await bench.publish()
        await bench.arrived()


def _run(
    command: str,
    connection: ConnectionOptions,
    load: Load,
    measured: Callable[[Bench], Awaitable[None]],
    *,
    as_json: bool,
) -> None:
    check_event(Event(load.subject, {"Payload": "x" * load.size_bytes}))
    figures = run_async(_measured(command, connection, load, measured, as_json=as_json))
    if not figures.is_complete:
        print_error(f"ended by --limit-s after {load.limit_s:g} s; give it more time, or fewer events")
    if not figures.is_good:
        raise typer.Exit(1)


async def _measured(
    command: str,
    connection: ConnectionOptions,
    load: Load,
    measured: Callable[[Bench], Awaitable[None]],
    *,
    as_json: bool,
) -> BenchFigures:
    """Measure, and print the figures: also of a measurement that ends early, by a signal, an error or the limit."""
    is_complete = False

    def figures() -> BenchFigures:
        return figures_of(
            command,
            bench.recorded,
            subject=load.subject,
            events=bench.wanted,
            size_bytes=load.size_bytes,
            is_complete=is_complete,
            may_lack=not is_complete,
        )

    def show_progress() -> None:
        if as_json:
            print_progress_json("progress", bench.progress())
        else:
            print_progress(bench.progress())

    async with bench_agents(connection, load) as bench:
        try:
            async with repeated(PROGRESS_EACH_S, show_progress), asyncio.timeout(load.limit_s):
                await measured(bench)
            is_complete = True
        except WanderbusError:  # some are timeouts of another kind
            raise
        except TimeoutError:
            pass  # the limit
        finally:
            _print(figures(), as_json=as_json)
        return figures()


def _print(figures: BenchFigures, *, as_json: bool) -> None:
    if as_json:
        print_json(figures)
        return
    for line in figures.lines():
        print_line(line)
