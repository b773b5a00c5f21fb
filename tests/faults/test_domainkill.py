"""``./do domainkill``: servers of a domain that are really killed and whose disks are really full."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from demo.network import LoopbackNetwork
from faults import domainkill
from faults.domain_cast import FAN_OUT, cast, host_names
from faults.domain_servers import KINDS, SERVERS, places_in
from faults.domainkill import GROUP_MOVE_EACH_S, Run
from faults.kill_options import INTERRUPTED
from faults.small_disks import SmallDisk, small_disks
from faults.victim import Died
from wanderbus.testbed import CannotRunError

takes_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system takes root")


@pytest.mark.integration
@pytest.mark.parametrize("network", [pytest.param("netns", marks=takes_root), "loopback"])
def test_nothing_is_lost_whatever_is_killed_or_full(tmp_path: Path, network: str) -> None:
    report = tmp_path / "report.json"
    small = ["--short-log", "--agents", "12", "--seconds", "12", "--rate", "30", "--seed", "3", "--network", network]
    small += ["--federated"] * (network == "netns")
    assert domainkill.main([*small, "--json", str(report), "--strict"]) == 0
    written = json.loads(report.read_text())
    names = ("lost", "repeated", "out_of_order", "causal_violations", "integrity_errors")
    assert {goal["name"]: goal["value"] for goal in written["goals"]} == {f"domain_{name}": 0 for name in names}
    (result,) = written["results"]
    assert result["network"] == network
    assert [result[name] for name in names] == [0] * 5
    assert result["deliveries"] > result["events"] > 0
    assert result["too_little"] == []
    disks = os.geteuid() == 0
    assert set(result["faults"]) == {f"{what} {kind}" for what in ("kill", "fill")[: 1 + disks] for kind in KINDS}
    assert min(result["faults"].values()) == 1


@takes_root
def test_a_small_disk_is_full_until_it_is_emptied(tmp_path: Path) -> None:
    with small_disks([tmp_path / "disk"], 1 << 20) as (disk,):
        (disk.directory / "log").write_bytes(bytes(4_096))
        disk.fill(0)
        assert disk.free_bytes == 0
        with pytest.raises(OSError, match="No space left"):
            (disk.directory / "log").write_bytes(bytes(99_999))
        disk.copy(tmp_path / "copy")
        assert [path.name for path in (tmp_path / "copy").iterdir()] == ["log"]
        disk.empty()
        disk.fill(1 << 19)
        assert 0 < disk.free_bytes <= 1 << 19
    assert list((tmp_path / "disk").iterdir()) == []


def test_without_root_no_disk_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CannotRunError, match="root"), small_disks([tmp_path / "disk"], 1 << 20):
        pass
    assert not (tmp_path / "disk").exists()


def test_agents_are_spread_over_servers_and_subjects(tmp_path: Path) -> None:
    network = LoopbackNetwork([*SERVERS, *host_names(200)])
    hosts = cast(200, network, places_in(network), 1, tmp_path, 500.0)
    roles = [role for host in hosts for role in host.agents]
    assert sorted(role.number for role in roles) == list(range(200))
    assert sum(host.rate_per_s for host in hosts) == pytest.approx(500.0)
    assert set(Counter(role.server for role in roles).values()) == {66, 67}
    ordered = Counter(role.subscriptions[0].subject for role in roles)
    assert set(ordered.values()) == {FAN_OUT}
    assert len(network._numbers) <= 15, "as many as a network of namespaces has"


def run(directory: Path, disks: dict[str, SmallDisk] | None = None) -> Run:
    network = LoopbackNetwork([*SERVERS, *host_names(16)])
    return Run(directory, network, disks or {}, 16, 100.0, 7)


@pytest.mark.parametrize("seconds", [12.0, 120.0])
def test_each_kind_of_fault_and_each_host_has_its_time(tmp_path: Path, seconds: float) -> None:
    planned = run(tmp_path, {name: SmallDisk(tmp_path) for name in SERVERS})
    plan = planned._plan(seconds)
    assert all(0 < each.at_s < seconds for each in plan)
    names = Counter(each.name for each in plan)
    groups = {name for name in names if name.isdecimal()}
    assert set(names) - groups == {*planned.faults, *host_names(16)}
    assert {int(name) for name in groups} <= set(planned._servers.leaders)
    assert sum(names[name] for name in groups) == round(seconds / GROUP_MOVE_EACH_S)
    assert max(names[name] for name in planned.faults) - min(names[name] for name in planned.faults) <= 1


def test_a_run_that_proves_nothing_says_why(tmp_path: Path) -> None:
    made = run(tmp_path)
    good = {
        "causal_pairs": 1,
        "moves": 1,
        "walks": 1,
        "group_moves": 1,
        "rate_per_s": 10.0,
        "deliveries": 2,
        "events": 2,
    }
    made.faults = dict.fromkeys(made.faults, 1)
    assert made._lacking(good) == []
    assert made._lacking({**good, "moves": 0}) == ["no moves"]
    assert made._lacking({**good, "walks": 0}) == ["no walks"]
    assert made._lacking({**good, "group_moves": 0}) == ["no group_moves"]
    assert made._lacking({**good, "causal_pairs": 0}) == ["no causal_pairs"]
    assert made._lacking({**good, "rate_per_s": 9.9}) == ["9.9 events/s, less than 10"]
    assert made._lacking({**good, "deliveries": 1}) == ["1 deliveries of 2 events"]
    made.faults["kill leader"] = 0
    assert made._lacking(good) == ["no kill leader"]


@pytest.mark.parametrize(("broken", "lacking", "status"), [(0, [], 0), (1, [], 1), (0, ["no moves"], 1)])
def test_the_status_is_that_of_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, lacking: list[str], status: int
) -> None:
    async def play(self: Run, seconds: float) -> None:
        if broken:
            self.verdict.broken("lost", "an event")

    monkeypatch.setattr(Run, "play", play)
    monkeypatch.setattr(Run, "_lacking", lambda self, figures: lacking)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    assert domainkill.main(["--agents", "8", "--network", "loopback"]) == status
    assert tmp_path.exists() is bool(status)


class Interrupted(Run):
    """A run without processes that is interrupted, and whose agents never answer."""

    async def _begin(self) -> None:
        asyncio.get_running_loop().call_later(0.1, signal.raise_signal, signal.SIGTERM)

    async def _listen(self, name: str) -> None:
        await asyncio.sleep(60.0)

    async def _drain(self) -> None:
        assert self.published_s < 10


class Dying(Interrupted):
    """A run in which a process of agents ends at once."""

    async def _begin(self) -> None:
        pass

    async def _listen(self, name: str) -> None:
        raise Died(f"{name} ended")

    async def _drain(self) -> None:
        raise AssertionError


@pytest.mark.parametrize(("kind", "status"), [(Interrupted, INTERRUPTED), (Dying, 1)])
def test_a_run_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[Run], status: int
) -> None:
    monkeypatch.setattr(domainkill, "Run", kind)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    assert domainkill.main(["--agents", "8", "--network", "loopback"]) == status
    assert ("h0 ended" in capsys.readouterr().err) is (kind is Dying)


def test_the_defaults_are_those_of_the_full_run() -> None:
    options: argparse.Namespace = domainkill._parsed([])
    assert (options.agents, options.seconds, options.rate) == (200, 120.0, 500.0)
