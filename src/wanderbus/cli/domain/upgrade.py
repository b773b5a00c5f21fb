"""``wanderbus domain upgrade``: all servers of a domain are restarted, one after another (SPEC S-02)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_all
from wanderbus.cli.domain.balance.steps import RATE, Step, Steps, all_answering, progress_note
from wanderbus.cli.domain.begun_upgrade import begun_upgrade, upgrade_ended
from wanderbus.cli.domain.drain import wait_until_empty
from wanderbus.cli.domain.servers_asked import (
    DomainFile,
    ServerAnswer,
    ask_all,
    domain_of,
    existing_domain_file,
    moved_groups,
)
from wanderbus.cli.domain.status import is_whole, present_leaders
from wanderbus.cli.domain.up import is_supervised
from wanderbus.cli.instants import read_instant
from wanderbus.cli.output import counted, print_json, print_line, print_unchanged, run_async
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.operator_rows import GroupInfo, ProcessInfo, ServerInfo
from wanderbus.runtime.child_process import ChildProcess
from wanderbus.subscription import instant_us

_LOOK_S: Final = 0.5
"""Pause until the servers are asked again."""

_SHOWN_S: Final = 2.0
"""Pause between two lines of progress."""

START_S_MAX: Final = 10.0
"""Time for which links are waited for at the begin."""

STUCK_S_MAX: Final = 10.0
"""Time after which a server is restarted with the sessions that cannot move."""


class ServerSeen(NamedTuple):
    """A server's process, what it says about the others, and the channel groups that have moved."""

    process: ProcessInfo
    others: Sequence[ServerInfo]
    groups: Sequence[GroupInfo]


Answers = Mapping[str, ServerAnswer[ServerSeen]]


@visiting_all
def upgrade(
    *,
    connection: ConnectionOptions,
    restart: Annotated[
        str | None,
        typer.Option(
            "--restart",
            metavar="COMMAND",
            help="Shell command that restarts a server; {server} is replaced by its name.",
            show_default="end the process, if 'domain up' runs the server here; else ask",
        ),
    ] = None,
    started_before: Annotated[
        str | None,
        typer.Option(
            help="Leave out servers that were started later, as in 2026-11-21T10:00:00Z.",
            show_default="the begin of the command, and of one that was interrupted",
        ),
    ] = None,
    move_groups: Annotated[
        bool,
        typer.Option("--move-groups", help="Let other servers lead the channel groups of a server meanwhile."),
    ] = False,
    event_domain: DomainFile = None,
    json: AsJson = False,
) -> None:
    """Restart all servers of a domain, one after another, for example to run another version of wanderbus.

    Each server is drained, restarted, and takes sessions again once it has its links again; then comes the next one. No
    event is lost or repeated. Without a COMMAND, a server that 'domain up' runs on this computer is restarted by that;
    for others the command says what to do, and waits. Publishes to the channels that a server leads wait while it is
    restarted. With --move-groups they wait for some round trips, twice. Sessions that cannot move stay, and their
    devices connect again. Ctrl-C ends the command; run again, it goes on with the servers that were not restarted yet.
    Needs the role of administrator elsewhere.

    Example: wanderbus domain upgrade

    Example: wanderbus domain upgrade --restart 'ssh {server}.example.org systemctl restart wanderbus' --event-domain
    mydomain/domain.toml --user sip:alice@example.org
    """
    domain = domain_of(event_domain)
    if len(domain.settings.present) == 1:
        raise ConfigurationError(
            "the domain has one server, and its sessions have no other place; restart it by itself"
        )
    upgraded = _Upgrade(connection, event_domain, restart, _instant_us(started_before), move_groups, json=json)
    if run_async(upgraded.run()):
        raise typer.Exit(1)


def _instant_us(text: str | None) -> int | None:
    if text is None:
        return None
    if (instant := read_instant(text, "--started-before")) is None:
        raise ConfigurationError(f"--started-before: invalid time {text!r} (expected one as 2026-11-21T10:00:00Z)")
    return instant_us(instant)


class _Upgrade:
    """The restart of all servers, or of those that were started before a time."""

    def __init__(
        self,
        connection: ConnectionOptions,
        file: Path | None,
        command: str | None,
        before_us: int | None,
        moves_groups: bool,
        *,
        json: bool,
    ) -> None:
        self._connection = connection
        self._file = file
        self._domain = domain_of(file)
        self._directory = connection.data_dir or existing_domain_file(file).parent
        self._command = command
        self._before_us = before_us
        self._moves_groups = moves_groups
        self._json = json
        self._note = progress_note(json=json)
        self._moved = self._failed = 0
        self._links: Set[tuple[str, str]] = frozenset()
        self._away: list[Step] = []
        """Moves of groups that have left the server which is restarted."""

    async def run(self) -> int:
        """Restart the servers; return how many moves of channel groups failed."""
        loop = asyncio.get_running_loop()
        began, seen = loop.time(), await self._at_start()
        starts = {server: each.found.process.started_us for server, each in seen.items() if each.found is not None}
        restarted, due = 0, self._due(starts)
        try:
            for server in seen:
                if server in due:
                    await self._upgrade(server)
                    restarted += 1
                else:
                    self._note("done", f"{server} was started later")
                    await self._end_drain(server)
        except (asyncio.CancelledError, WanderbusError):
            self._show_rest()
            raise
        if self._before_us is None:
            upgrade_ended(self._directory)
        seconds = loop.time() - began
        if self._json:
            print_json({"restarted": restarted, "seconds": seconds, "sessions_moved": self._moved})
        else:
            several = f"{counted(restarted, 'server')} restarted in {seconds:.1f} s"
            print_line(f"{several}, {counted(self._moved, 'session')} moved")
        return self._failed

    def _due(self, starts: Mapping[str, int]) -> list[str]:
        """Return the servers that are to be restarted."""
        if self._before_us is not None:
            return [server for server, start in starts.items() if start < self._before_us]
        before = begun_upgrade(self._directory, starts)
        due = [server for server, start in starts.items() if start == before.get(server)]
        if len(due) < len(starts):
            self._note(
                "continuing", "goes on with the interrupted upgrade; run the command again afterwards to restart all"
            )
        return due

    async def _upgrade(self, server: str) -> None:
        """Drain a server, restart it, and let it take sessions again."""
        loop = asyncio.get_running_loop()
        began, seen = loop.time(), await self._whole()
        moved, left = await self._drain(seen[server])
        if self._moves_groups:
            away = Steps(seen, RATE, json=self._json)
            self._away = away.done
            self._failed += len(await away.perform(self._led(seen, server)))
        former = seen[server].found
        assert former is not None
        await self._restart(server, seen[server], former.process)
        seen = await self._whole(former.process)
        back = [Step(step.target, step.source, group=step.group) for step in self._away]
        self._failed += len(await Steps(seen, RATE, json=self._json).perform(back))
        self._away = []
        await self._end_drain(server)
        self._moved += moved
        self._show(server, seen, loop.time() - began, moved, left)

    async def _drain(self, answer: ServerAnswer[ServerSeen]) -> tuple[int, int]:
        """Drain a server; return how many sessions have moved, and how many cannot."""
        assert answer.connection is not None
        self._note("draining", f"{answer.server} is drained")
        async with answer.connection.visitor() as agent:
            first = await agent.operator.drain(on=True)
            last = await wait_until_empty(agent.operator, first, lambda line: self._note("draining", line), STUCK_S_MAX)
        return first.sessions - last.sessions, last.sessions

    async def _end_drain(self, server: str) -> None:
        answer = (await self._seen())[server]
        all_answering({server: answer})
        assert answer.connection is not None
        async with answer.connection.visitor() as agent:
            await agent.operator.drain(on=False)

    def _led(self, seen: Answers, server: str) -> list[Step]:
        """Return moves of the groups that a server leads to the others in turn."""
        leaders = present_leaders(self._domain, (each.found.groups if each.found else () for each in seen.values()))
        may_lead = self._domain.settings.servers_with("resolution") if "ordered" in self._domain.models else ()
        others = [each for each in may_lead if each != server]
        led = [group for group, leader in enumerate(leaders) if leader == server]
        return [Step(server, others[place % len(others)], group=group) for place, group in enumerate(led) if others]

    async def _restart(self, server: str, answer: ServerAnswer[ServerSeen], process: ProcessInfo) -> None:
        """Restart a server, or ask somebody to do so."""
        connection = answer.connection
        if self._command is not None:
            self._note("restarting", f"{server} is restarted")
            command = self._command.replace("{server}", shlex.quote(server))
            running = await ChildProcess.start(("/bin/sh", "-c", command), print_unchanged, print_unchanged)
            try:
                status = await running.wait()
            finally:
                running.kill()  # after Ctrl-C
            if status:
                raise WanderbusError(
                    f"the command that restarts {server} has ended with exit status {status}: {command}"
                )
        elif connection is not None and connection.login is not None and self._is_supervised(server, process.pid):
            self._note("restarting", f"process {process.pid} of {server} ends, and 'domain up' starts it again")
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        else:
            self._note("waiting", f"{server} is empty: restart it now; this command waits until it is back")

    def _is_supervised(self, server: str, pid: int) -> bool:
        return is_supervised(self._directory, server, pid)

    async def _at_start(self) -> Answers:
        """Return the answers of all servers, and note the links that they have, and are to have after each restart.

        Servers with different files of the domain do not know each other, as after one was added or removed.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + START_S_MAX
        while True:
            seen = await self._seen()
            all_answering(seen)
            self._links = links_of(seen)
            every = links_of(seen, lambda other: True)
            if self._links == every:
                return seen
            if loop.time() >= ends:
                self._note("links", f"{_without(every - self._links)}; this is not waited for")
                return seen
            await asyncio.sleep(_LOOK_S)

    async def _whole(self, former: ProcessInfo | None = None) -> Answers:
        """Return the answers of all servers once they have their links, and the ``former`` process has another one."""
        loop = asyncio.get_running_loop()
        shown_at = loop.time()
        while True:
            seen = await self._seen()
            if not (why := missing(seen, former, self._links)):
                return seen
            if loop.time() - shown_at >= _SHOWN_S:
                shown_at = loop.time()
                self._note("waiting", why)
            await asyncio.sleep(_LOOK_S)

    def _show_rest(self) -> None:
        """Print how to go on after an interruption."""
        if self._away:
            groups = ", ".join(str(step.group) for step in self._away)
            self._note("moved", f"{self._away[0].source} led these channel groups before: {groups}")
        self._note("interrupted", "run the command again: it leaves out the servers that were restarted")

    async def _seen(self) -> Answers:
        return await ask_all(self._connection, self._file, _seen_by)

    def _show(self, server: str, seen: Answers, seconds: float, moved: int, left: int) -> None:
        """Print that a server has been restarted."""
        found = seen[server].found
        assert found is not None
        if self._json:
            row = {"server": server, "version": found.process.version, "seconds": seconds}
            print_json({**row, "sessions_moved": moved, "sessions_left": left})
        else:
            stayed = f", {left} stayed" if left else ""
            print_line(
                f"{server} runs version {found.process.version}; {seconds:.1f} s, "
                f"{counted(moved, 'session')} moved{stayed}"
            )


async def _seen_by(operator: Operator) -> ServerSeen:
    return ServerSeen(
        await operator.process(),
        [row async for row in operator.servers()],
        await moved_groups(operator),
    )


def links_of(seen: Answers, is_meant: Callable[[ServerInfo], bool] = is_whole) -> Set[tuple[str, str]]:
    """Return the links between servers that were asked, as each of the two sees them; those that are whole."""
    return {
        (server, other.server)
        for server, answer in seen.items()
        for other in (answer.found.others if answer.found else ())
        if other.server in seen and is_meant(other)
    }


def _without(links: Set[tuple[str, str]]) -> str:
    server, other = min(links)
    return f"{server} does not have its link with {other} yet"


def missing(seen: Answers, former: ProcessInfo | None, links: Set[tuple[str, str]]) -> str:
    """Return which of ``links`` is missing, or which server still has its ``former`` process; "" if all is well."""
    for each, answer in seen.items():
        if answer.found is None:
            return f"{each} does not answer yet"
        if answer.found.process == former:
            return f"{each} still has its former process"
    rest = links - links_of(seen)
    return _without(rest) if rest else ""
