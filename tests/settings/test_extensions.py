"""Code of the operator that a file of settings names (SPEC H-10, G-24, G-26)."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Literal

import pytest

import wanderbus
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.errors import Closed, ConfigurationError
from wanderbus.subscription import Custom

MODULE = """
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.broker.device_changes import Handling
from wanderbus.api.detecting import Verdict

seen = []

def hook(change):
    seen.append((change.change, change.user))

def latest(queue):
    return [each.number for each in queue.newest[:-1]]

class rules:
    even = Kind(lambda parameters, asked: asked.event["n"] % 2 == 0)

asked = []

class Probing:
    def judge(self, observed):
        asked.append(observed)
        if observed.probes == 3:
            return Verdict("gone")
        return Verdict("probe", ask_at=observed.now + 0.1)

text = "no code"
"""
NUMBER = 0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of the operator that can be imported."""
    global NUMBER
    NUMBER += 1
    name = f"operators_rules_{NUMBER}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def settings(directory: Path, extensions: str) -> Path:
    file = directory / "broker.toml"
    users = '[users]\nalice = "secret"\nbob = "word"\n'
    file.write_text(f'domain = "localhost"\ndata_dir = "data"\nport = 0\n{users}[extensions]\n{extensions}')
    file.chmod(0o600)
    return file


def test_a_server_runs_what_its_file_names(module: str, tmp_path: Path) -> None:
    text = f'disconnection = "{module}:hook"\n[extensions.restrictions]\neven = "{module}:rules.even"\n'
    text += f'[extensions.queue_policies]\nlatest = "{module}:latest"\n[broker.queue]\npolicy = "latest"'
    file = settings(tmp_path, text)

    async def story() -> list[object]:
        async with wanderbus.Server.from_file(file) as server:
            place = f"127.0.0.1:{server.address[1]}"
            named = wanderbus.connect(
                "sip:alice@localhost", password="secret", server=place, state_dir=tmp_path / "alice"
            )
            only_even = [Custom("even", {})]
            async with named as alice, alice.subscribe("S", restrictions=only_even, keep=True):
                pass
            bob = wanderbus.connect("sip:bob@localhost", password="word", server=place, state_dir=tmp_path / "bob")
            async with bob:
                for n in (1, 2, 3, 4, 5):
                    await bob.publish("S", {"n": n})
            again = wanderbus.connect(
                "sip:alice@localhost", password="secret", server=place, state_dir=tmp_path / "alice"
            )
            async with again as alice, alice.subscribe("S", restrictions=only_even, gaps=True) as notifications:
                return [await anext(notifications) for _ in range(2)]

    gap, notification = asyncio.run(asyncio.wait_for(story(), 20))
    assert isinstance(gap, wanderbus.Gap)
    assert (gap.count, gap.reason) == (1, "policy.latest")
    assert isinstance(notification, wanderbus.Notification)
    assert notification.event["n"] == 4
    seen = __import__(module).seen
    assert ("disconnected", "sip:alice@localhost") in seen or ("left", "sip:alice@localhost") in seen


@pytest.mark.parametrize("over", ["udp", "tcp"])
def test_g26_detector_of_the_operator(module: str, tmp_path: Path, over: Literal["udp", "tcp"]) -> None:
    """It finds within a second that a device is gone; by default nothing would be noticed, since nothing is sent."""
    file = settings(tmp_path, f'disconnection = "{module}:hook"\ndetector = "{module}:Probing"')

    async def story() -> None:
        async with wanderbus.Server.from_file(file) as server:
            place, state = f"127.0.0.1:{server.address[1]}", tmp_path / "alice"
            alice = wanderbus.connect(
                "sip:alice@localhost", password="secret", server=place, state_dir=state, data_transport=over
            )
            async with alice, alice.subscribe("S"):
                await asyncio.sleep(0.5)
                assert code.seen == []
                assert alice._driver is not None
                alice._driver.close()
                while not code.seen:
                    await asyncio.sleep(0.02)
                alice._shut(Closed("the test ends it"))

    code = __import__(module)
    with contextlib.suppress(Closed):
        asyncio.run(asyncio.wait_for(story(), 10))
    assert code.seen == [("disconnected", "sip:alice@localhost")]
    assert {each.protocol for each in code.asked} == {over.upper()}


def test_objects_override_named_extensions(module: str, tmp_path: Path) -> None:
    file = settings(tmp_path, f'[extensions.restrictions]\neven = "{module}:rules.even"\nodd = "{module}:rules.even"')
    given = Kind(lambda _parameters, _asked: True)
    kinds = wanderbus.Server.from_file(file, restrictions={"even": given})._extensions.restrictions._kinds
    assert kinds["even"] is given
    assert set(kinds) == {"even", "odd"}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (
            'disconnection = "nowhere"',
            r"extensions\.disconnection: 'nowhere' does not name an object; write module:object",
        ),
        ('disconnection = ":hook"', "write module:object"),
        ('disconnection = "no_such_module_at_all:hook"', "cannot be loaded .ModuleNotFoundError.*PYTHONPATH"),
        ('disconnection = "MODULE:nothing"', "cannot be loaded .AttributeError"),
        ('detector = "MODULE:text"', r"extensions\.detector: .* is not a function, but 'no code'"),
        ('disconnection = "MODULE:text"', "is not a function, but 'no code'"),
        ('queue_policies = { latest = "MODULE:text" }', r"extensions\.queue_policies\.latest: .* is not a function"),
        ('[broker.queue]\npolicy = "latest"', r"broker\.queue\.policy: unknown queue policy 'latest'"),
        (
            'restrictions = { even = "MODULE:hook" }',
            r"extensions\.restrictions\.even: .* is not a wanderbus.*\.Kind, but",
        ),
    ],
)
def test_unloadable_extensions_are_reported_before_anything_is_opened(
    module: str, tmp_path: Path, line: str, complaint: str
) -> None:
    file = settings(tmp_path, line.replace("MODULE", module))
    with pytest.raises(ConfigurationError, match=complaint):
        wanderbus.Server.from_file(file)
    assert not (tmp_path / "data").exists()
