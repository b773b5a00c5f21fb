"""``./do federationkill``: domains whose servers are really killed and whose links are really cut."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from faults import federationkill
from faults.federation_agents import HELD_PER_S, _Party, _Publisher
from faults.federation_servers import DOMAINS, SERVERS, FederatedServers
from faults.federationkill import CUTS, KILLS, Run
from harness.domain_network import LoopbackDomains, NamespaceDomains, open_domains
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import Namespaces, missing

takes_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces take root")
FIGURES: dict[str, Any] = {"rate_per_s": 10.0, "crossed": 2, "events": 2}


@pytest.mark.integration
@pytest.mark.parametrize("network", [pytest.param("netns", marks=takes_root), "loopback"])
def test_nothing_is_lost_or_repeated_whatever_is_killed_or_cut(tmp_path: Path, network: str) -> None:
    report = tmp_path / "report.json"
    small = ["--seconds", "1", "--rate", "40", "--seed", "5", "--network", network, "--json", str(report)]
    assert federationkill.main(small) == 0
    written = json.loads(report.read_text())
    values = {goal["name"]: goal["value"] for goal in written["goals"]}
    kinds = ("lost", "repeated", "out_of_order", "loops", "integrity_errors")
    assert [values[f"federation_{kind}"] for kind in kinds] == [0] * 5
    (result,) = written["results"]
    assert set(result["faults"]) == {*KILLS, *(CUTS if network == "netns" else ())}
    assert result["crossed"] > result["events"] > 0
    if network == "netns":
        assert 0 <= values["federation_healed_s"] < 60
    else:
        assert values["federation_healed_s"] is None


@pytest.mark.integration
@takes_root
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_cut_drops_what_goes_one_way_alone() -> None:
    network = NamespaceDomains(2, 2)
    network.open()
    try:
        there: Namespaces = network._made
        ways = ((0, 1, network.address(1, 1)), (1, 0, network.address(0, 1)))

        def seen() -> list[str]:
            return [there.source_seen(target, address, by=source) for source, target, address in ways]

        assert seen() == [network.address(0, 1), network.address(1, 1)]
        network.cut(0, 1)
        assert seen() == ["", network.address(1, 1)]
        network.heal(0, 1)
        assert seen() == [network.address(0, 1), network.address(1, 1)]
    finally:
        network.close()


def test_links_on_loopback_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    network, why = open_domains("auto", 3, 2)
    assert network.mode == "loopback"
    assert why == "domains on loopback, whose links are not cut: making network namespaces takes root"
    for change in (network.cut, network.heal):
        with pytest.raises(CannotRunError, match="cannot be cut"):
            change(0, 1)
    with pytest.raises(CannotRunError, match="takes root"):
        open_domains("netns", 3, 2)


def run(directory: Path, *, mode: str = "loopback", events_max: int = 0) -> Run:
    network = LoopbackDomains()
    network.mode = mode
    return Run(directory, network, 100.0, 7, events_max=events_max)


def test_agents_are_at_all_servers_and_want_different_events(tmp_path: Path) -> None:
    roles = run(tmp_path).roles
    assert [role.name for role in roles] == list(DOMAINS)
    assert sorted(each.number for role in roles for each in role.publishers) == list(range(6))
    assert all(len({each.server for each in role.publishers}) == len(SERVERS) for role in roles)
    assert all(len({want.subject for want in each.wants}) == 4 for role in roles for each in role.readers)
    assert {want.interest for role in roles for each in role.readers for want in each.wants} > {"one", "some"}


def test_each_kind_of_fault_has_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run(tmp_path, mode="netns")
    done: list[tuple[str, object]] = []

    async def kill(self: FederatedServers, domain: str, servers: list[str], down_s: float, random: Random) -> None:
        done.append(("kill", tuple(servers)))

    async def cut(
        self: FederatedServers, ways: list[tuple[int, int]], meanwhile: Awaitable[None], random: Random
    ) -> None:
        await meanwhile
        done.append(("cut", len(ways)))

    monkeypatch.setattr(FederatedServers, "kill", kill)
    monkeypatch.setattr(FederatedServers, "cut", cut)
    made._pause_s = (0.0, 0.0)
    monkeypatch.setattr(federationkill, "TURN_S", 0.0)
    monkeypatch.setattr(federationkill, "CUT_S", (0.0, 0.01))
    asyncio.run(made._disturb(0.0))
    assert made.faults == dict.fromkeys((*KILLS, *CUTS), 1)
    kills = [("kill", SERVERS[:1]), ("kill", SERVERS[:1]), ("kill", SERVERS[1:]), ("kill", SERVERS)]
    assert sorted(map(str, done)) == sorted(map(str, [*kills, ("cut", 2), ("cut", 2), ("cut", 1)]))


def test_a_run_ends_with_enough_events_though_not_all_faults_were_there(tmp_path: Path) -> None:
    made = run(tmp_path, events_max=100)
    made.counts = [99, 0, 0, 0]
    assert not made._is_over(1.0, 10.0)
    made.counts = [100, 0, 0, 0]
    assert made._is_over(1.0, 10.0)


def test_publishers_wait_while_too_much_is_due_that_has_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, orders = run(tmp_path), list[str]()
    # Each of six readers has two whole subjects of six, half of one and a quarter of one.
    assert made._due_each == pytest.approx(2.75)
    ahead = int(federationkill.AHEAD_MAX / made._due_each) + 1
    steps = iter([(0, 0), (ahead - 2, 0), (ahead, 0), (ahead, 0), (ahead, 10), (2 * ahead, ahead)])
    seen = list[tuple[str, ...]]()

    async def step(seconds: float) -> None:
        seen.append(tuple(orders))
        if (counts := next(steps, None)) is None:
            raise asyncio.CancelledError
        made.counts = [counts[0], 0, counts[1], 0]

    monkeypatch.setattr(made, "_tell", orders.append)
    monkeypatch.setattr(asyncio, "sleep", step)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(made._pace())
    assert seen == [(), (), (), ("hold",), ("hold",), ("hold", "resume"), ("hold", "resume", "hold")]


def test_agents_publish_few_events_while_they_are_held_and_bursts_none_the_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = list[int]()

    async def publish(self: _Publisher, subject: int) -> None:
        published.append(subject)

    monkeypatch.setattr(_Publisher, "publish", publish)

    async def rates() -> list[float]:
        party, found = _Party(run(tmp_path).roles[0]), list[float]()
        for order in ("go", "hold", "burst", "resume"):
            party.order(order)
            await asyncio.sleep(0)
            found.append(party._rate_per_s)
        return found

    assert asyncio.run(rates()) == [100 / 3, HELD_PER_S, HELD_PER_S, 100 / 3]
    assert len(published) == 30


@pytest.mark.parametrize(
    ("options", "seconds"),
    [([], 120), (["--events", "9"], 900), (["--events", "9", "--limit-s", "5"], 5), (["--limit-s", "5"], 5)],
)
def test_the_duration_of_a_run_of_so_many_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], seconds: float
) -> None:
    played = list[tuple[float, tuple[float, float]]]()

    async def play(self: Run, seconds: float) -> None:
        played.append((seconds, self._pause_s))

    monkeypatch.setattr(Run, "play", play)
    monkeypatch.setattr(Run, "results", lambda self: {**FIGURES, "healed_s": 1.0, "too_little": []})
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    assert federationkill.main(["--network", "loopback", "--pause-s", "30", *options]) == 0
    assert played == [(seconds, (10.0, 30.0))]


def test_a_run_that_proves_nothing_says_why(tmp_path: Path) -> None:
    made = run(tmp_path)
    made.faults = dict.fromkeys(made.faults, 1)
    assert made._lacking(FIGURES) == []
    assert made._lacking({**FIGURES, "rate_per_s": 9.9}) == ["9.9 events/s, less than 10"]
    assert made._lacking({**FIGURES, "crossed": 1}) == ["1 events in other domains, of 2"]
    made.faults["kill both"] = 0
    assert made._lacking(FIGURES) == ["no kill both"]


@pytest.mark.parametrize(
    ("broken", "healed_s", "strict", "status"),
    [(0, 1.0, True, 0), (0, 6.0, False, 0), (0, 6.0, True, 1), (1, 1.0, False, 1), (0, math.nan, True, 0)],
)
def test_the_status_is_that_of_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, healed_s: float, strict: bool, status: int
) -> None:
    async def play(self: Run, seconds: float) -> None:
        if broken:
            self.verdict.broken("loops", "an event")

    monkeypatch.setattr(Run, "play", play)
    monkeypatch.setattr(Run, "results", lambda self: {**FIGURES, "healed_s": healed_s, "too_little": []})
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    assert federationkill.main(["--network", "loopback", *["--strict"] * strict]) == status
    assert tmp_path.exists() is bool(broken)


def test_the_defaults_are_those_of_the_goals() -> None:
    options: argparse.Namespace = federationkill._parsed([])
    assert (options.seconds, options.rate, options.events, options.pause_s) == (120.0, 300.0, 0, 3.0)
