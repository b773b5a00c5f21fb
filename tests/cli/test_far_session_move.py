"""``wanderbus session move`` to another domain, by the operators of two domains (SPEC L-01, L-06)."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.api.far_domains import TwoDomains
from tests.api.world import SUBJECT, numbers, run
from tests.cli.shell import ROOT, one_line, without_notes

pytestmark = pytest.mark.integration

CAROL = "sip:carol@a.example"


class Operators:
    """The operators of both domains, on the computers of their servers."""

    def __init__(self, domains: TwoDomains) -> None:
        self.domains = domains

    async def command(self, *words: str, at: str = "a.example", server: str = "gate") -> tuple[int, str, str]:
        """Run a command of the operator of a domain; return exit status and outputs."""
        place = self.domains.directory / at
        data = self.domains.settings(at, server)["data_dir"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wanderbus", *words, "--data-dir", str(data)),
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_STATE_HOME": str(place / "xdg")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), without_notes(err.decode())

    async def move(self, *words: str, **options: Any) -> tuple[int, str, str]:
        """Move the session of carol."""
        return await self.command("session", "move", CAROL, *words, **options)


def test_l01_l06_an_operator_moves_a_session_to_another_domain_and_its_operator_moves_it_back(tmp_path: Path) -> None:
    domains = TwoDomains(tmp_path)
    operators = Operators(domains)

    async def story() -> None:
        async with (
            domains.running(),
            domains.agent("carol", "a.example", "secret") as carol,
            carol.subscribe(SUBJECT) as reader,
            domains.agent("bob", "b.example", "hunter2") as bob,
        ):
            moved = await operators.move("--to", "b.example")
            assert moved == (0, f"the session default of {CAROL} is at b.example/gate now\n", "")
            assert domains.owners(CAROL) == [1]
            await bob.publish(SUBJECT, {"n": 1})
            assert await numbers(reader, 1) == [1]
            status, out, err = await operators.move("--to", "b.example")
            assert (status, out) == (1, "")
            assert one_line(err).startswith(f"no server has a session of {CAROL}")
            status, _, err = await operators.command("peek", CAROL, "--session", "default")
            assert (status, one_line(err)) == (1, f"the session 'default' of {CAROL} has moved to b.example/gate")
            status, out, err = await operators.move("--to", "a.example/gate", "--json", at="b.example")
            place = f'"user":"{CAROL}","session":"default","server":"a.example/gate"'
            assert (status, out, err) == (0, f'{{{place},"moved":true}}\n', "")
            await bob.publish(SUBJECT, {"n": 2})
            assert await numbers(reader, 1) == [2]

    run(story())


@pytest.mark.parametrize(
    ("trust", "target", "complaint"),
    [
        ({"gives": False}, "b.example", "a.example gives no sessions to b.example; see federation.toml"),
        ({"takes": False}, "b.example", "b.example takes no sessions of a.example; see its federation.toml"),
        ({}, "c.example", "'c.example' is no foreign domain of a.example; those are b.example"),
    ],
)
def test_l01_a_session_that_an_operator_does_not_give_or_take_stays(
    tmp_path: Path, trust: dict[str, Any], target: str, complaint: str
) -> None:
    domains = TwoDomains(tmp_path, **trust)
    operators = Operators(domains)

    async def story() -> None:
        async with domains.running(), domains.agent("carol", "a.example", "secret") as carol, carol.subscribe(SUBJECT):
            status, out, err = await operators.move("--to", target)
            assert (status, out, one_line(err)) == (1, "", complaint)
            assert domains.owners(CAROL) == [0]

    run(story())
