"""``wanderbus domain rebalance``: moves that share the load of a domain among its servers (SPEC J-08, S-02)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.balance.load import DomainLoad, ServerCounts, balancing_steps, load_between, percent
from wanderbus.cli.domain.balance.steps import RATE, DryRun, Rate, Step, Steps, all_answering, progress_note
from wanderbus.cli.domain.servers_asked import DomainFile, ServerAnswer, ask_all, domain_of, moved_groups
from wanderbus.cli.domain.status import present_leaders
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import counted, print_json, print_line, print_lines, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import NoResponse
from wanderbus.planning.rebalancing import MAX_RATIO, ratio
from wanderbus.settings.event_domain import EventDomain

Answers = Mapping[str, ServerAnswer[ServerCounts]]

_OVER_S: Final = 10.0
_MIN_PERCENT: Final = 1.0

ATTEMPTS: Final = 3
"""Choices of moves by one measurement: something else moves instead of what cannot."""

ROUNDS_STAYED: Final = 5
"""Rounds of --watch in which something that has moved, or could not, stays where it is."""


class Bounds(NamedTuple):
    """Bounds on the load above which something moves, and the time of a measurement."""

    max_ratio: float
    min_percent: float
    over_s: float


@visiting_all
def rebalance(
    *,
    connection: ConnectionOptions,
    max_ratio: Annotated[
        float, typer.Option(min=1.01, help="Largest load of a server, divided by the mean, without any move.")
    ] = MAX_RATIO,
    min_load: Annotated[
        float, typer.Option(min=0.0, help="Largest load of a server, in percent of a processor, without any move.")
    ] = _MIN_PERCENT,
    over: Annotated[
        float, typer.Option(min=0.1, help="Seconds for which the load is measured, in each round of --watch.")
    ] = _OVER_S,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C: measure, move, measure again.")] = False,
    dry_run: DryRun = False,
    rate: Rate = RATE,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Measure the load of each server, and move channel groups and sessions until no server has far more than the mean.

    The load is an estimate of processor time from what the servers count: events by channel group, their bytes, and the
    notifications of each session. Nothing moves while the largest load is within --max-ratio of the mean. Above it, few
    moves bring it halfway to the mean; with --watch, what has moved stays for five rounds. Groups move first, sessions
    only where that does not suffice. No event is lost or repeated. Ctrl-C ends the command between two moves; run it
    again to go on. Exit status 1 if a move fails. Needs the role of administrator elsewhere.

    Example: wanderbus domain rebalance --dry-run

    Example: wanderbus domain rebalance --watch --over 60 --max-ratio 1.5 --event-domain mydomain/domain.toml
    """
    balancer = _Balancer(connection, event_domain, Bounds(max_ratio, min_load, over), rate, json=json)
    failed = run_async(balancer.watch(dry_run=dry_run) if watch else balancer.once(dry_run=dry_run))
    if failed:
        raise typer.Exit(1)


class _Balancer:
    """Measures and moves, once or again and again."""

    def __init__(
        self, connection: ConnectionOptions, file: Path | None, bounds: Bounds, rate: float, *, json: bool
    ) -> None:
        self._connection = connection
        self._file = file
        self._domain: EventDomain = domain_of(file)
        self._bounds = bounds
        self._rate = rate
        self._json = json
        self._note = progress_note(json=json)
        self._staying: Counter[str] = Counter()
        """Rounds for which something stays, by its name."""

    async def once(self, *, dry_run: bool) -> int:
        """Measure once and move; return how many moves failed. Other items move instead of those that cannot."""
        load, answers = await self._measured()
        several = 0
        for _ in range(ATTEMPTS):
            steps = self._steps(load)
            self._show(load, load.after(_targets(steps)), len(steps))
            performing = Steps(answers, self._rate, json=self._json)
            if dry_run:
                performing.show(steps)
                break
            failed = await performing.perform(steps)
            self._staying.update(dict.fromkeys(_targets(steps), 1 + ROUNDS_STAYED))  # with this one
            self._show_end(performing.done, failed)
            several += len(failed)
            if not failed:
                break
            load = load.after(_targets(performing.done))
        return several

    async def watch(self, *, dry_run: bool) -> int:
        """Measure and move until the command is interrupted."""
        while True:
            try:
                await self.once(dry_run=dry_run)
            except NoResponse as error:  # a server is being restarted, for example
                self._note("waiting", f"{error}; measuring again in {self._bounds.over_s:g} s")
                await asyncio.sleep(self._bounds.over_s)
            self._staying -= Counter(dict.fromkeys(self._staying, 1))

    async def _measured(self) -> tuple[DomainLoad, Answers]:
        """Return the load, and the last answers of all servers."""
        loop, over_s = asyncio.get_running_loop(), self._bounds.over_s
        before, began = await self._counts(), loop.time()
        self._note("measuring", f"measuring the load for {over_s:g} s")
        await asyncio.sleep(over_s)
        after, took_s = await self._counts(), loop.time() - began
        leaders = present_leaders(self._domain, (counts.groups for counts in _found(after).values()))
        load = load_between(_found(before), _found(after), took_s, leaders, self._domain.settings.name)
        return load, after

    async def _counts(self) -> Answers:
        answers = await ask_all(self._connection, self._file, _counts_of)
        all_answering(answers)
        return answers

    def _steps(self, load: DomainLoad) -> list[Step]:
        if percent(max(load.by_server().values())) < self._bounds.min_percent:
            return []
        settings = self._domain.settings
        return balancing_steps(
            load,
            settings.servers_with("resolution"),
            settings.servers_with("access"),
            max_ratio=self._bounds.max_ratio,
            staying=self._staying,
        )

    def _show(self, load: DomainLoad, expected: DomainLoad, moves: int) -> None:
        """Print the load of each server now, and as it is expected after the moves."""
        now, then = load.by_server(), expected.by_server()
        if self._json:
            print_json(
                {
                    "servers": [{"server": each, "load_us": now[each], "expected_us": then[each]} for each in now],
                    "ratio": ratio(now.values()),
                    "expected_ratio": ratio(then.values()),
                }
            )
            return
        rows = [_Row(each, percent(now[each]), percent(then[each])) for each in now]
        print_lines("\n".join(aligned(rows, _COLUMNS if moves else _UNMOVED_COLUMNS)))
        after = f", {ratio(then.values()):.2f} after {counted(moves, 'move')}" if moves else "; nothing to move"
        print_line(f"largest load: {ratio(now.values()):.2f} times the mean{after}")

    def _show_end(self, done: Sequence[Step], failed: Sequence[Step]) -> None:
        if self._json:
            print_json({"moves": len(done), "failed": len(failed)})
        elif done or failed:
            print_line(f"{counted(len(done), 'move')} done, {len(failed)} failed")


def _targets(steps: Iterable[Step]) -> dict[str, str]:
    """Return the next server of what moves, by its name."""
    return {step.name: step.target for step in steps}


async def _counts_of(operator: Operator) -> ServerCounts:
    return ServerCounts(
        await operator.process(),
        [row async for row in operator.loads()],
        await moved_groups(operator),
        [row async for row in operator.sessions()],
    )


def _found(answers: Answers) -> dict[str, ServerCounts]:
    return {server: answer.found for server, answer in answers.items() if answer.found is not None}


class _Row(NamedTuple):
    """Load of a server in percent of a processor, now and after the moves."""

    server: str
    now: float
    then: float


_UNMOVED_COLUMNS: Final[Columns] = {"server": lambda row: row.server, "load %": lambda row: f"{row.now:.1f}"}
_COLUMNS: Final[Columns] = {**_UNMOVED_COLUMNS, "then %": lambda row: f"{row.then:.1f}"}
