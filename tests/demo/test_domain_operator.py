"""The operator of the demonstration's domain: a command that is refused while a server is down is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demo import domain_operator
from demo.domain_operator import DomainOperator
from harness import domain_command
from wanderbus.testbed import CannotRunError


class Commands:
    """A crew whose processes end at once, each with the next status."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.started: list[Sequence[str]] = []

    async def start(self, _: str, argv: Sequence[str]) -> Any:
        self.started.append(argv)
        status = self.statuses.pop(0)

        async def wait(_: float) -> int:
            return status

        return SimpleNamespace(wait=wait, kill_now=lambda: None, last_words=lambda: "s4 cannot be reached")


def operator(crew: Commands) -> DomainOperator:
    network = SimpleNamespace(command=lambda host, argv: [host, *argv])
    context: Any = SimpleNamespace(crew=crew, network=network, news=lambda _: None)
    servers: Any = {name: SimpleNamespace(data=Path(name)) for name in ("s3", "s5")}
    return DomainOperator(context, Path("domain.toml"), servers)


def test_a_command_that_fails_is_repeated_beside_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_command, "AGAIN_S", 0.0)
    crew = Commands(1, 0, 0, 0)
    own = operator(crew)

    async def story() -> None:
        await own.move_group("Departure", "s4", "s5")
        await own.drain("s3")
        await own.end_drain("s3")

    asyncio.run(story())
    options = ["--event-domain", "domain.toml", "--data-dir"]
    ends = [argv[argv.index("domain") + 1 :] for argv in crew.started]
    assert ends == [
        *[["move", "Departure", "s5", *options, "s5"]] * 2,
        ["drain", "s3", *options, "s3"],
        ["drain", "s3", "--cancel", *options, "s3"],
    ]
    assert [argv[0] for argv in crew.started] == ["s5", "s5", "s3", "s3"]
    [moved], [drain] = own.group_moves, own.drains
    assert (moved["subject"], moved["who"], moved["to"]) == ("Departure", "s4", "s5")
    assert drain["from_us"] <= drain["to_us"]


def test_a_command_that_fails_for_too_long_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_operator, "COMMAND_S_MAX", -1.0)
    with pytest.raises(CannotRunError, match="domain drain s3: s4 cannot be reached"):
        asyncio.run(operator(Commands(1)).drain("s3"))
