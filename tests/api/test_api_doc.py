"""Programs of docs/api.md, run as they stand but for the server's address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.api.world import PASSWORDS, World, run

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_programs_run_one_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect_to: Any = wanderbus.connect

    def connect(uri: str, *, password: str, **options: Any) -> wanderbus.Agent:
        assert (uri, password) == ("sip:bob@localhost", "sesame"), "the user of the README"
        settings = {"password": PASSWORDS["bob"], "server": world.address, "state_dir": world.directory / "bob"}
        agent: wanderbus.Agent = connect_to(uri, **settings, **options)
        return agent

    monkeypatch.setattr(wanderbus, "connect", connect, raising=False)

    async def story() -> None:
        async with world.server():
            for program in PROGRAMS:
                names: dict[str, Any] = {}
                exec(program.replace("asyncio.run(main())", ""), names)
                await names["main"]()

    run(story())
    printed = capsys.readouterr().out
    assert len(PROGRAMS) == 2
    assert "'Price': 24.5" in printed
    assert "0 notifications lost" in printed
    assert "sip:bob@localhost default" in printed
