"""The run: start the processes, play the plan, wait until nothing changes, end every process, and audit."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from demo import SPARK_SUBJECTS, flights, json_lines, network, sip_and_relay
from demo.display import Display, RunState
from demo.domain_operator import DomainOperator
from demo.domains_operator import CutLink
from demo.evidence import read_lines, write_evidence
from demo.expected import Due, expected_events
from demo.flights import FlightEvent
from demo.hosts import (
    READY_S,
    SIP_PORT,
    PublisherHost,
    RunContext,
    ServerHost,
    TravellerHost,
    free_sip_port,
    server_arguments,
)
from demo.plan import Step, plan
from demo.plan_runner import PlanRunner
from demo.spark_host import SparkHost, engines
from demo.traveller_results import read_journal, read_taken
from demo.users import PUBLISHER, TRAVELLERS, User
from demo.verdict import make_result
from wanderbus.errors import WanderbusError
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import Crew

STALL_S: Final = 30.0
"""Longest time without a single event being published."""

DRAIN_S: Final = 120.0
"""Longest time for the last deliveries once everything is published."""

QUIET_S: Final = 8.0
"""After so long without a delivery, while every traveller is connected and Spark has matched all, no more come."""

SETTLE_S: Final = 1.0
"""Time to go on listening once all is delivered, so that a repetition would be seen."""

Evidence = dict[str, list[dict[str, Any]]]

ServersKind = Literal["server", "domain", "domains"]


@dataclass(frozen=True)
class Options:
    """Options of a run; ``rate`` in events a second, ``work`` an empty directory of this run's own.

    ``sip`` names the registrar and proxy, ``relay`` the relay of all data, and ``engine`` the subjects that Spark
    matches (:data:`demo.SPARK_SUBJECTS`). The page of the server goes to ``server_page``.
    """

    rows: int
    rate: float
    first_row: int
    seed: int
    address_mode: str
    work: Path
    server_page: Path
    sip: sip_and_relay.SipServer = "wanderbus"
    relay: sip_and_relay.RelayKind = "none"
    engine: str = "both"
    servers: ServersKind = "server"
    """One server with Spark, a domain of servers, or several domains; the latter without Spark."""


async def run_demo(options: Options, display: Display) -> tuple[dict[str, Any], Evidence]:
    """Run the demonstration; return its result and the evidence for the report.

    Raises :class:`CannotRunError` if a required program is missing. Every process is ended and every namespace removed
    when it returns or raises.
    """
    heart = asyncio.create_task(_keep_reporting(display))
    try:
        display.phase("looking at what is here")
        await asyncio.to_thread(preflight, options)
        from demo.domain_run import DomainRun  # which is a Run
        from demo.domains_run import DomainsRun

        kinds: Mapping[ServersKind, type[Run]] = {"server": Run, "domain": DomainRun, "domains": DomainsRun}
        kind = kinds[options.servers]
        hosts = (*kind.SERVERS, *(user.name for user in (*kind.PUBLISHERS, *kind.TRAVELLERS)))
        with _network(options.address_mode, hosts, display) as net:
            async with Crew(options.work / "logs") as crew:
                return await kind(options, display, net, crew).perform()
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
    if options.servers != "server":
        return
    sip_and_relay.preflight(options.sip, options.relay)
    try:
        check_java()
    except WanderbusError as error:
        raise CannotRunError(str(error)) from None


class Run:
    """One run on an open network with an empty crew."""

    SERVERS: Sequence[str] = (network.SERVER,)
    """Hosts that servers run on; the first decides the SIP port."""

    PUBLISHERS: Sequence[User] = (PUBLISHER,)
    TRAVELLERS: Sequence[User] = TRAVELLERS

    def __init__(self, options: Options, display: Display, net: network.Network, crew: Crew) -> None:
        users = (*self.PUBLISHERS, *self.TRAVELLERS)
        passwords = {user.name: secrets.token_urlsafe(12) for user in users}
        port = free_sip_port(net.address(self.SERVERS[0])) if net.needs_order else SIP_PORT
        self._options = options
        self._trouble: list[str] = []
        self._display = display
        self._context = RunContext(options.work, net, crew, display.state, display.news, passwords, port)
        self._servers: dict[str, ServerHost] = {}
        self._spark: SparkHost | None = None
        self._operator: DomainOperator | None = None
        self._link: CutLink | None = None
        self._place_servers()
        self._publishers = self._make_publishers()
        self._travellers = {user.name: TravellerHost(self._context, user) for user in self.TRAVELLERS}
        display.state.travellers = {name: traveller.view for name, traveller in self._travellers.items()}

    def _place_servers(self) -> None:
        """Make the hosts of the server, of its SIP server and relay, and of Spark."""
        options, context = self._options, self._context
        sip = self._sip_and_relay = sip_and_relay.SipAndRelay(
            options.sip,
            options.relay,
            work=options.work,
            network=context.network,
            crew=context.crew,
            passwords=context.passwords,
            sip_port=context.sip_port,
        )
        arguments = server_arguments(context, SPARK_SUBJECTS[options.engine], sip.arguments())
        server = self._servers[network.SERVER] = ServerHost(context, sip.users, arguments)
        phase = partial(self._display.phase, step=4)
        self._spark = SparkHost(context, server.data, engines(options.engine), options.server_page, phase)

    def _make_publishers(self) -> Sequence[PublisherHost]:
        return [PublisherHost(self._context, user) for user in self.PUBLISHERS]

    async def perform(self) -> tuple[dict[str, Any], Evidence]:
        """Do the whole run; see the module."""
        options, state = self._options, self._display.state
        expected = await self._start_processes()
        self._display.phase(f"publishing {state.events} departures and arrivals at {options.rate:g}/s", 2)
        await self._publish_while_travellers_move()
        self._display.phase("everything is published; waiting for the last deliveries", 3)
        await drain(state)
        await self._leave()
        evidence = self._collect(expected)
        job = await self._audited(evidence)
        killed = [network.SERVER if kill["who"] in self._servers else kill["who"] for kill in self._context.kills]
        result = make_result(
            job,
            self.TRAVELLERS,
            first_row=options.first_row,
            rows=options.rows,
            events=state.events,
            engine=self._engine,
            address_mode=self._context.network.mode,
            killed=killed,
            trouble=self._trouble,
        )
        return {**result, **self._served}, evidence

    @property
    def _engine(self) -> str:
        """Return what matches, as in the results."""
        return self._options.engine

    async def _audited(self, evidence: Evidence) -> Mapping[str, Any]:
        """Return what each traveller should have received and what it received, from the lake and the evidence."""
        assert self._spark is not None
        return await self._spark.journeys()

    async def _start_servers(self) -> None:
        """Start Spark, which takes longest, and the server."""
        assert self._spark is not None
        await self._spark.start()
        self._display.phase("starting the server")
        await self._sip_and_relay.start()
        await self._servers[network.SERVER].start()
        self._spark.match()
        self._display.phase(f"starting Spark, {len(self._travellers)} travellers and the publisher")

    async def _start_processes(self) -> dict[str, list[Due]]:
        """Start all processes, and compute meanwhile what each traveller is due.

        The registrations of the travellers are the first batch of Spark.
        """
        options = self._options
        await self._start_servers()
        events = await asyncio.to_thread(lambda: list(flights.events(options.first_row, options.rows)))
        self._display.state.events = len(events)
        async with asyncio.TaskGroup() as group:
            computing = group.create_task(asyncio.to_thread(expected_events, self.TRAVELLERS, events))
            for traveller in self._travellers.values():
                group.create_task(traveller.start(READY_S))
            for publisher in self._publishers:
                group.create_task(publisher.start(events, options.first_row, options.rows, options.rate))
            if self._spark is not None:
                group.create_task(self._spark.matching())
        expected = computing.result()
        for traveller in self._travellers.values():
            traveller.view.expected = len(expected[traveller.user.uri])
        await self._settle(events)
        return expected

    async def _settle(self, events: Sequence[FlightEvent]) -> None:
        """Wait until everything is ready for the events, after the processes are."""

    async def _publish_while_travellers_move(self) -> None:
        """Publish while the travellers roam. A failure is recorded and ends the play; the audit still follows."""
        for publisher in self._publishers:
            publisher.begin()
        own = self._spark, self._travellers, self._operator, self._link
        show = PlanRunner(self._context, self._servers, *own)
        steps = self._plan()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._published())
                group.create_task(show.play(steps))
        except* CannotRunError as failures:
            self._trouble += map(str, _leaves(failures))
            for line in self._trouble:
                self._display.news(f"trouble: {line}")

    def _plan(self) -> list[Step]:
        return plan(TRAVELLERS, self._options.seed, kills_spark=self._options.engine == "spark")

    async def _published(self) -> None:
        state = self._display.state
        last, since = -1, time.monotonic()
        while state.published < state.events:
            await asyncio.sleep(0.1)
            if state.published != last:
                last, since = state.published, time.monotonic()
            for publisher in self._publishers:
                if (failure := publisher.failure) is not None:
                    raise CannotRunError(f"the publisher failed after {state.published} events: {failure}")
            if time.monotonic() - since > STALL_S:
                raise CannotRunError(f"nothing was published for {STALL_S:.0f} s, after {state.published} events")

    async def _leave(self) -> None:
        """Stop every process in order."""
        for name, traveller in self._travellers.items():
            if (words := traveller.failure) is not None:
                self._trouble.append(f"{name} had failed: {words}")
                self._display.news(self._trouble[-1])
        self._ended_us = json_lines.wall_us()
        self._served = await self._look_at_servers()
        leaving = (traveller.leave() for traveller in self._travellers.values())
        await asyncio.gather(*(publisher.stop() for publisher in self._publishers), *leaving)
        await self._stop_servers()

    async def _look_at_servers(self) -> dict[str, Any]:
        """Note what failed, and return which programs served SIP and relayed."""
        for line in self._sip_and_relay.failures:
            self._trouble.append(line)
            self._display.news(line)
        return await self._sip_and_relay.result()

    async def _stop_servers(self) -> None:
        await self._servers[network.SERVER].stop()
        await self._sip_and_relay.stop()

    def _collect(self, expected: dict[str, list[Due]]) -> Evidence:
        """Write the evidence, and return it with the kills, for the report."""
        travellers = self._travellers.values()
        directory = self._options.work / "evidence"
        write_evidence(
            directory,
            expected,
            {traveller.user.uri: read_taken(traveller.results) for traveller in travellers},
            {traveller.user.uri: read_journal(traveller.results) for traveller in travellers},
            [move for traveller in travellers for move in traveller.moves],
            [planned_end for traveller in travellers for planned_end in traveller.planned_ends],
            self._ended_us,
        )
        evidence = {name: read_lines(directory / f"{name}.jsonl") for name in ("expected", "taken", "moves", "away")}
        return {**evidence, "kills": self._context.kills, "outages": self._context.outages}


def _leaves(failures: BaseExceptionGroup[CannotRunError]) -> Iterator[CannotRunError]:
    """Yield the failures in a group, also those of groups in it: each step of a plan is a task of another group."""
    for each in failures.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


async def drain(state: RunState) -> None:
    """Wait until every traveller has committed what it is due and a moment more, or until nothing changes any more.

    A traveller that is not connected may still heal, and Spark may still match: on a busy machine that takes longer
    than the silence that ends the deliveries otherwise.
    """
    began = moved = time.monotonic()
    last = state.taken
    while (now := time.monotonic()) - began < DRAIN_S and now - moved < QUIET_S:
        if all(traveller.taken >= traveller.expected for traveller in state.travellers.values()):
            await asyncio.sleep(SETTLE_S)
            return
        await asyncio.sleep(0.1)
        is_away = any(traveller.status != "CONNECTED" for traveller in state.travellers.values())
        if state.taken != last or is_away or state.spark_lag != 0:
            last, moved = state.taken, time.monotonic()


@contextmanager
def _network(mode: str, hosts: tuple[str, ...], display: Display) -> Iterator[network.Network]:
    net, why = network.choose(mode, hosts)
    try:
        display.news(why)
        yield net
    finally:
        net.close()


async def _keep_reporting(display: Display) -> None:
    while True:
        display.beat()
        await asyncio.sleep(0.25)
