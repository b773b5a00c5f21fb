"""Runs of the experiment: real servers, relays, publishers and consumers, all configurations in turns.

For each number of consumers every configuration is set up at once, and only one of them at a time has events.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from wanderbus.errors import WanderbusError
from wanderbus.evaluation.overhead.experiment import Configuration, OverheadExperiment, SampleTurn, rounds
from wanderbus.evaluation.overhead.network import (
    ADDRESSES,
    BROKER,
    DEVICE,
    PRIVATE,
    RELAY,
    RELAY_PORTS,
    SIP_PORTS,
    Relayed,
    RunNetwork,
    network,
)
from wanderbus.evaluation.overhead.parts import ProgramConnection, PublishOrder, PublishReport, Report, SampleReport
from wanderbus.evaluation.overhead.summary import PlaceTimes, Sample
from wanderbus.testbed.async_processes import AsyncProcess, Crew

READY_S_MAX: Final = 180.0
"""Longest time to start: some eighty processes begin at once."""

START_S: Final = 0.05
"""Time from the order to publish to the first event."""

OVERDUE_S: Final = 60.0
"""Time after the last event of a turn in which all programs must answer; otherwise the run has failed."""

WARM_UP: Final = 20
"""Events before the sample, which do not count: they exercise every path and every program."""

PROBES: Final = 2
"""Probes of the disk and of each link before every round."""

SYNC_BYTES: Final = 300
"""Bytes written before each sync of the disk, about a record of the log."""

_DOMAIN: Final = "eval.test"
_PASSWORD: Final = "of the evaluation"
_NG: Final = f"{ADDRESSES[RELAY]}:2223"


async def run(
    experiment: OverheadExperiment, runs: int, seed: int, tell: Callable[[str], None]
) -> tuple[list[Sample], PlaceTimes]:
    """Measure every configuration with every number of consumers ``runs`` times; return samples, disk and link times.

    Everything is cleaned up in any case.

    :param seed: decides on the order of turns in the first run
    :param tell: is called with the progress
    :raises WanderbusError: a program fails, or traffic bypasses the relays
    :raises ConfigurationError: the network cannot be created
    """
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="wanderbus-eval-") as directory:
        async with network(experiment, Path(directory)) as hosts:
            probing = _Probing(hosts, Path(directory))
            for number, consumers in product(range(runs), experiment.consumers):
                where = f"run {number + 1} of {runs}, {consumers} of {_all(experiment.consumers)} consumers"
                tell(f"{where}: starting")
                async with _setups(experiment, consumers, hosts, Path(directory, f"{number}-{consumers}")) as setups:
                    check_relayed(experiment, hosts.relayed())
                    for turns in rounds(experiment, Random(f"{seed + number} {consumers}")):
                        await asyncio.to_thread(probing.probe)
                        for turn in turns:
                            tell(f"{where}: {turn.first} of {experiment.events} events, {turn.configuration.about}")
                            await setups[turn.configuration].play(turn)
                    samples += [setup.sample(number) for setup in setups.values()]
                check_relayed(experiment, hosts.relayed())
            return samples, probing.found()


def _all(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


@contextlib.asynccontextmanager
async def _setups(
    experiment: OverheadExperiment, consumers: int, hosts: RunNetwork, work: Path
) -> AsyncIterator[dict[Configuration, _Setup]]:
    """Provide a setup for each configuration, connected and warm."""
    async with contextlib.AsyncExitStack() as stack:
        setups = {}
        for each in experiment.configurations:
            crew = await stack.enter_async_context(Crew(work / str(each)))
            setups[each] = _Setup(each, experiment, consumers, hosts, work / str(each), crew)
        try:
            async with asyncio.timeout(READY_S_MAX):
                for setup in setups.values():
                    await setup.start()
                for setup in setups.values():
                    await setup.ready()
        except WanderbusError:
            raise
        except TimeoutError:
            raise WanderbusError(f"servers and agents were not ready within {READY_S_MAX:g} s") from None
        for setup in setups.values():
            await setup.warm_up()
        yield setups


class _Setup:
    """One configuration with its consumers."""

    def __init__(
        self,
        configuration: Configuration,
        experiment: OverheadExperiment,
        consumers: int,
        hosts: RunNetwork,
        work: Path,
        crew: Crew,
    ) -> None:
        self._configuration = configuration
        self._experiment = experiment
        self._count = consumers
        self._hosts = hosts
        self._work = work
        self._crew = crew
        self._consumers: list[AsyncProcess] = []
        self._unanswered = 0
        self._totals: list[SampleReport] = []
        """Report of each consumer, after the last turn."""
        self._latencies_us: list[int] = []
        self._rounds_ms: list[float] = []
        """Mean of each turn."""

    async def start(self) -> None:
        """Start all programs; publisher and consumers are not yet :meth:`ready`."""
        names = ["publisher", *(f"consumer-{number}" for number in range(self._count))]
        (self._work / "users").touch(0o600)
        (self._work / "users").write_text("".join(f"{name}:{_PASSWORD}\n" for name in names), encoding="utf-8")
        if self._configuration is Configuration.RELAY_APART:
            await (await self._run("relay", RELAY, [*_WANDERBUS, "relay", *_relay_options()])).line()
        config = self._work / "server.toml"
        config.write_text(self._settings(), encoding="utf-8")
        server = await self._run("server", BROKER, [*_WANDERBUS, "up", "--config", str(config), "--json"])
        places = msgspec.json.decode(await server.line())
        parties = {name: msgspec.json.encode(self._party(name, places)).decode() for name in names}
        for name in names[1:]:
            argv = [*_PARTS, "consumer", parties[name]]
            self._consumers.append(await self._run(name, DEVICE, argv))
        self._publisher = await self._run(names[0], DEVICE, [*_PARTS, "publisher", parties[names[0]]])

    async def ready(self) -> None:
        """Wait until all are connected and have subscribed."""
        for each in (self._publisher, *self._consumers):
            await each.line()

    async def warm_up(self) -> None:
        """Publish events that do not count."""
        await self._publish(-WARM_UP, WARM_UP)

    async def play(self, turn: SampleTurn) -> None:
        """Publish the events of a turn, and record their latencies."""
        self._totals = await self._publish(turn.first, turn.count)
        fresh_us = [latency_us for each in self._totals for latency_us in each.latencies_us]
        self._latencies_us += fresh_us
        if fresh_us:
            self._rounds_ms.append(statistics.fmean(fresh_us) / 1_000)

    def sample(self, run: int) -> Sample:
        """Return the sample of all turns."""
        return Sample.of(
            run,
            self._configuration,
            [each.sum_s for each in self._totals],
            self._latencies_us,
            self._rounds_ms,
            missing=self._count * self._experiment.events - sum(each.events for each in self._totals),
            unanswered=self._unanswered,
        )

    async def _publish(self, first: int, count: int) -> list[SampleReport]:
        rate_per_s = self._experiment.rate_per_s
        try:
            async with asyncio.timeout(count / rate_per_s + OVERDUE_S):
                self._publisher.send(PublishOrder(time.monotonic() + START_S, first, count, rate_per_s))
                answer = msgspec.json.decode(await self._publisher.line(), type=PublishReport)
                self._unanswered += answer.unanswered
                for each in self._consumers:
                    each.send(Report(first + count - 1))
                return [msgspec.json.decode(await each.line(), type=SampleReport) for each in self._consumers]
        except WanderbusError:
            raise
        except TimeoutError:
            raise WanderbusError(f"{self._configuration.about}: a program stopped responding") from None

    def _settings(self) -> str:
        """Return the server's settings file."""
        common = (
            f'domain = "{_DOMAIN}"\nhost = "{ADDRESSES[BROKER]}"\nport = {SIP_PORTS[self._configuration]}\n'
            f'users = "{self._work / "users"}"\ndata_dir = "{self._work / "data"}"\n'
            f"encryption = {str(self._experiment.encryption).lower()}\n"
        )
        match self._configuration:
            case Configuration.ECI:
                return f'{common}eci_port = 0\neci_host = "{ADDRESSES[BROKER]}"\n'
            case Configuration.MOBILE:
                return common
            case Configuration.RELAY_BESIDE:
                ports = RELAY_PORTS[self._configuration]
                return f'{common}[relay]\naddress = "{ADDRESSES[BROKER]}"\nports = "{ports}"\n'
            case Configuration.RELAY_APART:
                return f'{common}relays = ["{_NG}"]\n'

    def _party(self, name: str, places: dict[str, str]) -> ProgramConnection:
        local_address = PRIVATE if self._configuration.behind_nat else ADDRESSES[DEVICE]
        given: dict[str, Any] = {"local_address": local_address, "connect_s_max": READY_S_MAX}
        if self._configuration is Configuration.ECI:
            return ProgramConnection(places["eci"], given)
        server = places["ready"].removeprefix("sip:")
        given |= {"server": server, "password": _PASSWORD, "state_dir": str(self._work / name)}
        return ProgramConnection(f"sip:{name}@{_DOMAIN}", given | {"encryption": self._experiment.encryption})

    async def _run(self, name: str, host: str, argv: Sequence[str]) -> AsyncProcess:
        return await self._crew.start(name, self._hosts.on(host, argv))


_WANDERBUS: Final = (sys.executable, "-m", "wanderbus")
_PARTS: Final = (sys.executable, "-m", "wanderbus.evaluation.overhead.parts")


def _relay_options() -> list[str]:
    options = {
        "--address": ADDRESSES[RELAY],
        "--ports": RELAY_PORTS[Configuration.RELAY_APART],
        "--ng-listen": _NG,
        "--ng-from": ADDRESSES[BROKER],
    }
    return [word for option in options.items() for word in option]


class _Probing:
    """Measures the disk and the links between turns, when no turn is measured."""

    def __init__(self, hosts: RunNetwork, directory: Path) -> None:
        self._hosts = hosts
        self._file = directory / "probe"
        self._syncs_s: list[float] = []
        self._round_trips_s: dict[tuple[str, str], list[float]] = {
            pair: [] for pair in ((DEVICE, BROKER), (DEVICE, RELAY), (BROKER, RELAY))
        }

    def probe(self) -> None:
        """Measure everything several times."""
        for (one, other), found_s in self._round_trips_s.items():
            found_s += self._hosts.round_trips_s(one, other, PROBES)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for _ in range(PROBES):
                os.write(descriptor, bytes(SYNC_BYTES))
                began_s = time.monotonic()
                os.fdatasync(descriptor)
                self._syncs_s.append(time.monotonic() - began_s)
        finally:
            os.close(descriptor)

    def found(self) -> PlaceTimes:
        """Return the medians."""
        round_trips = {
            f"{one}-{other}": statistics.median(s) * 1_000 for (one, other), s in self._round_trips_s.items()
        }
        return PlaceTimes(statistics.median(self._syncs_s) * 1_000, round_trips)


def check_relayed(experiment: OverheadExperiment, seen: Relayed) -> None:
    """Raise :class:`WanderbusError` unless exactly the intended traffic from behind NAT passed a relay."""
    through = {Configuration.RELAY_BESIDE: seen.beside, Configuration.RELAY_APART: seen.apart}
    for configuration, datagrams in through.items():
        if (configuration in experiment.configurations) != (datagrams > 0):
            raise WanderbusError(f"{configuration.about}: {datagrams} datagrams passed its relay")
    if seen.around:
        raise WanderbusError(f"{seen.around} datagrams from behind NAT bypassed the relays")
