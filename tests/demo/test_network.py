"""The two networks: loopback addresses that change by command, namespaces whose addresses really change."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from demo.namespace_networks import NamespaceNetwork, NatNetwork
from demo.network import PLACES, LoopbackNetwork, Network, choose
from wanderbus.testbed import CannotRunError, namespaces
from wanderbus.testbed.namespaces import Namespaces

HOSTS = ("server", "ana", "bruno")
Built = TypeVar("Built", NamespaceNetwork, NatNetwork)


def test_loopback_addresses_are_distinct_and_come_round() -> None:
    net = LoopbackNetwork(HOSTS)
    net.open()
    seen = [net.address("ana"), *(net.move("ana") for _ in range(PLACES))]
    assert len(set(seen)) == PLACES
    assert seen[0] == seen[-1]
    assert seen[:-1] == [net.address_at("ana", place) for place in range(PLACES)]
    assert net.address("server") not in seen
    assert net.command("ana", ["true"]) == ["true"]


def test_auto_falls_back_to_loopback_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    net, why = choose("auto", HOSTS)
    assert net.mode == "loopback"
    assert "127.0.0.0/8" in why
    assert "takes root" in why


def test_asking_for_namespaces_that_cannot_be_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(CannotRunError, match="iproute2"):
        choose("netns", HOSTS)


@pytest.mark.parametrize(("make", "more"), [(NamespaceNetwork, 1), (NatNetwork, PLACES + 1)])
def test_a_build_that_fails_halfway_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[Sequence[str]], Network], more: int
) -> None:
    ran: list[tuple[str, ...]] = []

    def run(argv: list[str], text: str | None = None) -> str:
        ran.append(tuple(argv))
        if argv[:2] == ["ip", "link"]:
            raise CannotRunError("no veth here")
        return ""

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/sbin/{name}")
    monkeypatch.setattr(Namespaces, "sweep", lambda _: None)
    monkeypatch.setattr(namespaces, "run", run)
    with pytest.raises(CannotRunError, match="veth"):
        make(HOSTS).open()
    added = {argv[3] for argv in ran if argv[:3] == ("ip", "netns", "add")}
    deleted = {argv[3] for argv in ran if argv[:3] == ("ip", "netns", "delete")}
    assert added == deleted
    assert len(added) == len(HOSTS) + more


@contextlib.contextmanager
def opened(built: Built) -> Iterator[Built]:
    try:
        built.open()
    except CannotRunError as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield built
    built.close()
    assert not list(Path("/run/netns").glob(f"wbdemo{os.getpid()}-*"))


@pytest.fixture
def net() -> Iterator[NamespaceNetwork]:
    with opened(NamespaceNetwork(HOSTS)) as built:
        yield built


@pytest.mark.integration
def test_a_move_takes_the_old_address_away_and_the_new_one_is_reached(net: NamespaceNetwork) -> None:
    old = net.address("bruno")
    new = net.move("bruno")
    shown = subprocess.run(
        net.command("bruno", ["ip", "-4", "addr"]), capture_output=True, text=True, check=True
    ).stdout
    assert [old, new] == [net.address_at("bruno", place) for place in (0, 1)]
    assert new in shown
    assert old not in shown
    assert net._namespaces.source_seen("server", net.address("server"), by="bruno") == new


@pytest.mark.integration
def test_leftovers_of_a_dead_run_are_removed_and_others_kept(net: NamespaceNetwork) -> None:
    dead = "wbdemo99999999-0000-server"
    subprocess.run(["ip", "netns", "add", dead], check=True)
    Namespaces("wbdemo").sweep()
    assert not Path("/run/netns", dead).exists()
    assert len(list(Path("/run/netns").glob(f"wbdemo{os.getpid()}-*"))) == len(HOSTS) + 1


@pytest.fixture
def behind_nat() -> Iterator[NatNetwork]:
    with opened(NatNetwork(HOSTS)) as built:
        yield built


@pytest.mark.integration
def test_behind_nat_every_place_is_behind_another_public_address(behind_nat: NatNetwork) -> None:
    """Two hosts may have one private address, and two public ones."""
    assert behind_nat.address("ana") == behind_nat.address("bruno")
    seen: dict[str, list[str]] = {}
    for _ in range(PLACES):
        for host in ("ana", "bruno"):
            address = behind_nat.address("server")
            seen.setdefault(host, []).append(behind_nat._internet.namespaces.source_seen("server", address, by=host))
            behind_nat.move(host)
    for host, addresses in seen.items():
        assert addresses == [behind_nat.address_at(host, place) for place in range(PLACES)]
    assert all(len(set(addresses)) == PLACES and "" not in addresses for addresses in seen.values())
    assert all(one != other for one, other in zip(*seen.values(), strict=True))
