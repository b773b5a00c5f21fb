"""``wanderbus demo``: a server and users who move, leave and return, in one process on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.demo.account import UserFigures, account_of, verdict
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import log_to_stderr, print_json, print_line, run_async
from wanderbus.client.agent import Agent
from wanderbus.client.connect import connect
from wanderbus.errors import ConfigurationError, NoResponse, WanderbusError
from wanderbus.event import Event, Notification, Position
from wanderbus.filters import parse
from wanderbus.server.server import Server

SUBJECT: Final = "Departure"
RATE_PER_S: Final = 20.0
"""Events published a second."""

ARRIVE_S_MAX: Final = 15.0
"""Longest wait for the last events."""

OTHER_S_MAX: Final = 45.0
"""Longest time for everything but publishing, on a busy computer."""

SETTLE_S: Final = 0.5
"""Time to go on listening once all is delivered, so that a repetition would be seen."""

_AIRPORTS: Final = ("IAH", "SFO", "ORD")
_PUBLISHER: Final = "tower"


class Wish(NamedTuple):
    """A user of the demonstration, and the filter of the events that this user wants."""

    user: str
    expression: str


ANN: Final = Wish("ann", "")
BEN: Final = Wish("ben", "DepDelay > 30")
CLEO: Final = Wish("cleo", "Dest == IAH")


def demo(
    seconds: Annotated[
        float, typer.Option(min=4.0, max=60.0, help="Time for which events are published, in seconds.")
    ] = 16.0,
    json: AsJson = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more than warnings.")] = False,
) -> None:
    """Show a server and users who move: one changes its address, one leaves and returns.

    Everything runs in this process, on loopback, without root, and leaves nothing behind. Counts at the end what each
    user should have got and has got. Exit status 1 if an event was lost, repeated or out of order.

    Example: wanderbus demo

    Example: wanderbus demo --seconds 5 --json
    """
    log_to_stderr(verbose=verbose)
    accounts = run_async(_bounded(Demonstration(seconds, Narrator(as_json=json)), 2 * seconds + OTHER_S_MAX))
    if not all(each.is_good for each in accounts):
        raise typer.Exit(1)


async def _bounded(demonstration: Demonstration, longest_s: float) -> Sequence[UserFigures]:
    try:
        async with asyncio.timeout(longest_s):
            return await demonstration.run()
    except WanderbusError:
        raise
    except TimeoutError:
        raise NoResponse(
            f"the demonstration has not ended after {longest_s:g} s; run it with --verbose, or on a computer that is "
            "less busy"
        ) from None


class Narrator:
    """Tells what happens, with the seconds since the start, as lines of text or JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._began_s = time.monotonic()

    def tell(self, what: str, text: str, **more: object) -> None:
        """Print an event of the demonstration: ``what`` is a word for programs, ``text`` is for people."""
        at_s = time.monotonic() - self._began_s
        if self._as_json:
            print_json({"at_s": round(at_s, 3), "what": what, "text": text, **more})
        else:
            print_line(f"{at_s:5.1f} s  {text}")

    def conclude(self, accounts: Sequence[UserFigures]) -> None:
        """Print the account of each user, and the verdict."""
        result = verdict(accounts)
        is_good = all(each.is_good for each in accounts)
        if self._as_json:
            print_json({"what": "verdict", "good": is_good, "text": result, "users": accounts})
            return
        print_line("")
        for line in aligned(accounts, _COLUMNS):
            print_line(line)
        print_line("")
        print_line(f"Verdict: {result}.")


class DemoTraveller:
    """A user who reads a subscription on one device, also over a move and an absence."""

    def __init__(self, wish: Wish, options: dict[str, Any]) -> None:
        self.wish = wish
        self.received: list[int] = []
        self.agent: Agent | None = None
        self._options = options
        self._position: Position | None = None
        self._reading: asyncio.Task[None] | None = None

    async def arrive(self, local_address: str | None = None) -> None:
        """Connect and read; after an absence, continue behind the last event that was read."""
        self.agent = await connect(f"sip:{self.wish.user}@localhost", local_address=local_address, **self._options)
        subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(self.agent, subscribed))
        await asyncio.wait([subscribed, self._reading], return_when=asyncio.FIRST_COMPLETED)
        if self._reading.done():
            self._reading.result()

    async def leave(self) -> None:
        """End the program: the subscription stays at the server, and what it matches waits there."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self.agent is not None:
            await self.agent.close()
        self.agent = self._reading = None

    async def _read(self, agent: Agent, subscribed: asyncio.Future[None]) -> None:
        wanted = agent.subscribe(SUBJECT, self.wish.expression, keep=True, resume=self._position)
        async with wanted as notifications:
            subscribed.set_result(None)
            async for notification in notifications:
                self._take(notification)

    def _take(self, notification: Notification) -> None:
        self.received.append(int(notification.event["Number"]))  # type: ignore[arg-type]  # published as an Integer
        self._position = notification.position


class Demonstration:
    """One run, with ``seconds`` of events."""

    def __init__(self, seconds: float, narrator: Narrator) -> None:
        self._seconds = seconds
        self._narrator = narrator
        self._published: list[Event] = []
        self._travellers: list[DemoTraveller] = []

    async def run(self) -> Sequence[UserFigures]:
        """Play the demonstration; return what each user got."""
        with tempfile.TemporaryDirectory(prefix="wanderbus-demo-") as directory:
            async with self._server(Path(directory)) as (server, passwords):
                await self._play(server, passwords, Path(directory))
                accounts = [account_of(each.wish.user, self._due(each), each.received) for each in self._travellers]
        self._narrator.conclude(accounts)
        return accounts

    @contextlib.asynccontextmanager
    async def _server(self, directory: Path) -> AsyncIterator[tuple[str, dict[str, str]]]:
        passwords = {name: secrets.token_hex(16) for name in (_PUBLISHER, ANN.user, BEN.user, CLEO.user)}
        data_dir = directory / "server"
        async with Server(domain="localhost", data_dir=data_dir, users=passwords, port=0) as server:
            place = f"127.0.0.1:{server.address[1]}"
            self._narrator.tell(
                "started", f"a server runs at {place}: registrar, proxy, broker and event log", server=place
            )
            yield place, passwords

    async def _play(self, server: str, passwords: dict[str, str], directory: Path) -> None:
        def options(name: str) -> dict[str, Any]:
            return {"password": passwords[name], "server": server, "state_dir": directory / name}

        _, ben, cleo = self._travellers = [DemoTraveller(wish, options(wish.user)) for wish in (ANN, BEN, CLEO)]
        try:
            for each in self._travellers:
                await each.arrive()
            self._narrator.tell(
                "subscribed",
                f"ann wants every departure, ben those with {BEN.expression}, cleo those with {CLEO.expression}",
            )
            async with connect(f"sip:{_PUBLISHER}@localhost", **options(_PUBLISHER)) as tower:
                publishing = asyncio.create_task(self._publish(tower))
                try:
                    await self._move_about(ben, cleo)
                    await publishing
                finally:
                    publishing.cancel()
                    await asyncio.wait([publishing])
            self._narrator.tell("published", f"all {len(self._published)} departures are published")
            await self._wait_for_the_last()
        finally:
            for each in self._travellers:
                await each.leave()

    async def _publish(self, tower: Agent) -> None:
        self._narrator.tell("publishing", f"departures are published, {RATE_PER_S:.0f} a second")
        for number in range(int(self._seconds * RATE_PER_S)):
            event = Event(
                SUBJECT, {"Number": number, "Dest": _AIRPORTS[number % 3], "DepDelay": float(number * 7 % 60)}
            )
            await tower.publish(event)
            self._published.append(event)
            await asyncio.sleep(1 / RATE_PER_S)

    async def _move_about(self, ben: DemoTraveller, cleo: DemoTraveller) -> None:
        """Let ben move after a quarter of the time, and cleo be away between a half and three quarters."""
        quarter_s = self._seconds / 4
        await asyncio.sleep(quarter_s)
        await self._move(ben)
        await asyncio.sleep(quarter_s)
        self._narrator.tell("left", "cleo leaves: her program ends, and her events wait at the server", user="cleo")
        await cleo.leave()
        before = len(cleo.received)
        await asyncio.sleep(quarter_s)
        missed = len(self._due(cleo)) - before
        await cleo.arrive()
        self._narrator.tell(
            "returned",
            f"cleo returns, as a new program at another port: {missed} events have waited for her",
            user="cleo",
            waited=missed,
        )

    async def _move(self, ben: DemoTraveller) -> None:
        agent = ben.agent
        assert agent is not None, "ben is connected"
        self._narrator.tell("moving", "ben moves: his address changes while events are on their way to him", user="ben")
        began_s, changes = time.monotonic(), agent.changes()
        try:
            await agent.rebind("127.0.0.2")
        except ConfigurationError:
            await agent.rebind("127.0.0.1")  # not every system has more loopback addresses; this is another port
        async for change in changes:
            if change.status == "CONNECTED":
                took_ms = (time.monotonic() - began_s) * 1_000
                text = f"ben is connected at {change.address}, {took_ms:.0f} ms later"
                self._narrator.tell("moved", text, user="ben", address=change.address, took_ms=round(took_ms, 1))
                return

    async def _wait_for_the_last(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ARRIVE_S_MAX):
                while any(set(self._due(each)) - set(each.received) for each in self._travellers):
                    await asyncio.sleep(0.05)
        await asyncio.sleep(SETTLE_S)

    def _due(self, traveller: DemoTraveller) -> list[int]:
        """Return the numbers of the published events that match, by the evaluator that defines what a filter means."""
        wanted = parse(traveller.wish.expression)
        return [int(each["Number"]) for each in self._published if wanted.matches(each)]  # type: ignore[arg-type]


_COLUMNS: Final[Columns] = {
    "user": lambda row: row.user,
    "due": lambda row: row.due,
    "received": lambda row: row.received,
    "lost": lambda row: row.lost,
    "repeated": lambda row: row.repeated,
    "out of order": lambda row: row.out_of_order,
}
