"""The operator of a domain, who uses ``wanderbus domain`` beside its servers while events flow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from demo import json_lines
from demo.hosts import RunContext, ServerHost
from harness.domain_command import domain_command, until_done

COMMAND_S_MAX: Final = 60.0
"""Longest time until a command has done its work: it is refused while a server is down, and then repeated."""


class DomainOperator:
    """Drains servers of the domain in ``file``, and moves channel groups.

    ``drains`` are the times in which a server drained, {"who", "from_us", "to_us"}, and ``group_moves`` the moves,
    {"subject", "who", "to", "from_us", "to_us"}.
    """

    def __init__(self, context: RunContext, file: Path, servers: Mapping[str, ServerHost]) -> None:
        self.drains: list[dict[str, Any]] = []
        self.group_moves: list[dict[str, Any]] = []
        self._drained_us = 0
        self._context = context
        self._file = file
        self._servers = servers

    async def drain(self, server: str) -> None:
        """Let a server drain, and wait until it has no session."""
        self._drained_us = json_lines.wall_us()
        self._context.news(f"server {server} drains")
        await self._do(server, "drain", server)
        self._context.news(f"server {server} has no sessions any more")

    async def end_drain(self, server: str) -> None:
        """Let a server take sessions again."""
        await self._do(server, "drain", server, "--cancel")
        self.drains.append({"who": server, "from_us": self._drained_us, "to_us": json_lines.wall_us()})
        self._context.news(f"server {server} takes sessions again")

    async def move_group(self, subject: str, leader: str, to: str) -> None:
        """Let the server ``to`` lead the channel group of ``subject``."""
        from_us = json_lines.wall_us()
        await self._do(to, "move", subject, to)
        times = {"from_us": from_us, "to_us": json_lines.wall_us()}
        self.group_moves.append({"subject": subject, "who": leader, "to": to, **times})
        self._context.news(f"server {to} leads the channel group of {subject} in place of {leader}")

    async def _do(self, server: str, *arguments: str) -> None:
        """Run a command beside ``server`` until it succeeds."""
        command = domain_command(self._file, self._servers[server].data, *arguments)
        start = partial(self._context.crew.start, "operator", self._context.network.command(server, command))
        await until_done(f"wanderbus domain {' '.join(arguments)}", start, COMMAND_S_MAX)
