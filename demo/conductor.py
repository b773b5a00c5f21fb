"""The run: start the processes, play the plan, wait until nothing changes, end every process, and audit."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from demo import companions, flights, network, reports
from demo.audit_host import AuditHost
from demo.evidence import read_lines, write_evidence
from demo.expected import expected_rows
from demo.hosts import SIP_PORT, PublisherHost, Seat, ServerHost, World, free_sip_port
from demo.people import PUBLISHER, TRAVELLERS
from demo.progress import Board, Scene
from demo.reckoning import reckon
from demo.results import read_journal, read_taken
from demo.roaming import plan
from demo.show import Show
from wanderbus.errors import WanderbusError
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import Crew

READY_S: Final = 45.0
"""Longest time for a process to get ready."""

STALL_S: Final = 30.0
"""Longest time without a single event being published."""

DRAIN_S: Final = 25.0
"""Longest time for the last deliveries once everything is published."""

QUIET_S: Final = 8.0
"""After so long without a delivery, no more are expected."""

SETTLE_S: Final = 1.0
"""Time to go on listening once all is delivered, so that a repetition would be seen."""

SPARK_AT: Final = 0.85
"""Fraction of the rows published at which Spark begins to start, so that it is ready soon after the last delivery."""

Evidence = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Options:
    """Options of a run; ``rate`` in events a second, ``work`` an empty directory of this run's own.

    ``sip`` names the registrar and proxy, and ``relay`` the relay of all data.
    """

    rows: int
    rate: float
    first_row: int
    seed: int
    address_mode: str
    work: Path
    sip: companions.SipServer = "wanderbus"
    relay: companions.RelayKind = "none"


async def conduct(options: Options, board: Board) -> tuple[dict[str, Any], Evidence]:
    """Run the demonstration; return its result and the evidence for the report.

    Raises :class:`CannotRunError` if a required program is missing. Every process is ended and every namespace removed
    when it returns or raises.
    """
    heart = asyncio.create_task(_beat(board))
    try:
        board.phase("looking at what is here")
        await asyncio.to_thread(preflight, options)
        hosts = (network.SERVER, PUBLISHER.name, *(person.name for person in TRAVELLERS))
        with _network(options.address_mode, hosts, board) as net:
            async with Crew(options.work / "logs") as crew:
                return await Run(options, board, net, crew).perform()
    finally:
        heart.cancel()


def preflight(options: Options) -> None:
    """Raise :class:`CannotRunError` if the input, Java or a program is missing; no process was started yet."""
    from wanderbus.pipeline.session import check_java

    flights.data_file()
    if options.first_row < 0 or options.rows < 1 or options.first_row + options.rows > flights.FILE_ROWS:
        raise CannotRunError(
            f"the file has rows 0 to {flights.FILE_ROWS - 1}; choose --first-row and --rows within them"
        )
    companions.preflight(options.sip, options.relay)
    try:
        check_java()
    except WanderbusError as error:
        raise CannotRunError(str(error)) from None


class Run:
    """One run on an open network with an empty crew."""

    def __init__(self, options: Options, board: Board, net: network.Network, crew: Crew) -> None:
        passwords = {person.name: secrets.token_urlsafe(12) for person in (PUBLISHER, *TRAVELLERS)}
        port = free_sip_port(net.address(network.SERVER)) if net.needs_order else SIP_PORT
        self._options = options
        self._trouble: list[str] = []
        self._board = board
        self._world = World(options.work, net, crew, board.scene, board.news, passwords, port)
        self._companions = companions.Companions(
            options.sip, options.relay, work=options.work, network=net, crew=crew, passwords=passwords, sip_port=port
        )
        self._server = ServerHost(self._world, self._companions)
        self._publisher = PublisherHost(self._world)
        self._seats = {person.name: Seat(self._world, person) for person in TRAVELLERS}
        self._audit = AuditHost(options.work, self._server.log, crew, partial(board.phase, step=4))
        board.scene.seats = {name: seat.view for name, seat in self._seats.items()}

    async def perform(self) -> tuple[dict[str, Any], Evidence]:
        """Do the whole run; see the module."""
        options, scene = self._options, self._board.scene
        expected = await self._set_stage()
        self._board.phase(f"publishing {options.rows} departures at {options.rate:g}/s", 2)
        await self._play()
        self._board.phase("everything is published; waiting for the last deliveries", 3)
        await drain(scene)
        await self._leave()
        evidence = self._collect(expected)
        job = await self._audit.journeys()
        killed = [kill["who"] for kill in self._world.kills]
        result = reckon(
            job,
            TRAVELLERS,
            first_row=options.first_row,
            rows=options.rows,
            address_mode=self._world.network.mode,
            killed=killed,
            trouble=self._trouble,
        )
        return {**result, **self._served}, evidence

    async def _set_stage(self) -> dict[str, list[int]]:
        """Start all processes, and compute meanwhile what each traveller is due."""
        options = self._options
        self._board.phase("starting the server")
        await self._companions.start()
        await self._server.start()
        self._board.phase(f"starting {len(self._seats)} travellers and the publisher")
        departures = flights.read_slice(options.first_row, options.rows)
        async with asyncio.TaskGroup() as group:
            computing = group.create_task(asyncio.to_thread(expected_rows, TRAVELLERS, departures))
            for seat in self._seats.values():
                group.create_task(seat.start(READY_S))
            group.create_task(self._publisher.start(options.first_row, options.rows, options.rate, READY_S))
        expected = computing.result()
        for seat in self._seats.values():
            seat.view.expected = len(expected[seat.person.user])
        return expected

    async def _play(self) -> None:
        """Publish while the travellers roam. A failure is recorded and ends the play; the audit still follows."""
        self._publisher.begin()
        show = Show(self._world, self._server, self._seats)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._published())
                group.create_task(self._warm_up())
                group.create_task(show.play(plan(TRAVELLERS, self._options.seed)))
        except* CannotRunError as failures:
            self._trouble += [str(failure) for failure in failures.exceptions]
            for line in self._trouble:
                self._board.news(f"trouble: {line}")

    async def _warm_up(self) -> None:
        scene = self._board.scene
        while scene.published < SPARK_AT * scene.rows:
            await asyncio.sleep(0.1)
        await self._audit.start()

    async def _published(self) -> None:
        scene = self._board.scene
        last, since = -1, time.monotonic()
        while scene.published < scene.rows:
            await asyncio.sleep(0.1)
            if scene.published != last:
                last, since = scene.published, time.monotonic()
            if (failure := self._publisher.failure) is not None:
                raise CannotRunError(f"the publisher failed after {scene.published} events: {failure}")
            if time.monotonic() - since > STALL_S:
                raise CannotRunError(f"nothing was published for {STALL_S:.0f} s, after {scene.published} events")

    async def _leave(self) -> None:
        """Stop every process in order."""
        for name, seat in self._seats.items():
            if (words := seat.failure) is not None:
                self._trouble.append(f"{name} had failed: {words}")
                self._board.news(self._trouble[-1])
        self._ended_us = reports.wall_us()
        for line in self._companions.failures:
            self._trouble.append(line)
            self._board.news(line)
        self._served = await self._companions.result()
        await asyncio.gather(self._publisher.stop(), *(seat.leave() for seat in self._seats.values()))
        await self._server.stop()
        await self._companions.stop()

    def _collect(self, expected: dict[str, list[int]]) -> Evidence:
        """Write the evidence, and return it with the kills, for the report."""
        seats = self._seats.values()
        directory = self._options.work / "evidence"
        write_evidence(
            directory,
            expected,
            {seat.person.user: read_taken(seat.results) for seat in seats},
            {seat.person.user: read_journal(seat.results) for seat in seats},
            [move for seat in seats for move in seat.moves],
            [silence for seat in seats for silence in seat.silences],
            self._ended_us,
        )
        evidence = {name: read_lines(directory / f"{name}.jsonl") for name in ("expected", "taken", "moves", "away")}
        return {**evidence, "kills": self._world.kills, "outages": self._world.outages}


async def drain(scene: Scene) -> None:
    """Wait until every traveller has committed what it is due and a moment more, or until nothing changes any more."""
    began = moved = time.monotonic()
    last = scene.taken
    while (now := time.monotonic()) - began < DRAIN_S and now - moved < QUIET_S:
        if all(seat.taken >= seat.expected for seat in scene.seats.values()):
            await asyncio.sleep(SETTLE_S)
            return
        await asyncio.sleep(0.1)
        if scene.taken != last:
            last, moved = scene.taken, time.monotonic()


@contextmanager
def _network(mode: str, hosts: tuple[str, ...], board: Board) -> Iterator[network.Network]:
    net, why = network.choose(mode, hosts)
    try:
        board.news(why)
        yield net
    finally:
        net.close()


async def _beat(board: Board) -> None:
    while True:
        board.beat()
        await asyncio.sleep(0.25)
