"""A domain on loopback whose servers send interest to a multicast group (SPEC J-12, K-05)."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wanderbus
from tests.api.event_domain import Domain, multicast_table
from tests.api.world import numbers, run, service
from wanderbus.channels.interest.multicast import CONFIRM_S, MISSES_MAX
from wanderbus.errors import ConfigurationError
from wanderbus.machine import SendDatagram
from wanderbus.runtime.net.driver import Driver

NAMES = ("s1", "s2", "s3", "s4")


@pytest.fixture
def domain(tmp_path: Path) -> Domain:
    return Domain(tmp_path / "domain", 4, keys='model = "decentralised"', tables=multicast_table())


def counted(server: wanderbus.Server) -> dict[str, tuple[int, int]]:
    """Changes by multicast, and repaired ones, for each other server."""
    return {
        row["server"]: (row.get("multicast_changes", 0), row.get("repaired_changes", 0))
        for row in service(server).machine.server_rows()
    }


def lose(monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[], bool]) -> None:
    """Lose datagrams to the group."""
    send = Driver._send

    def sent(self: Driver, wanted: SendDatagram) -> None:
        if wanted.socket != "multicast" or not is_lost():
            send(self, wanted)

    monkeypatch.setattr(Driver, "_send", sent)


async def subscribe_and_publish(domain: Domain, stack: AsyncExitStack, subscriptions: int) -> None:
    """Subscribe at the leader of a channel, and see that events of all other servers arrive."""
    subject = domain.subject_of("s1")
    alice = await stack.enter_async_context(domain.agent("s1"))
    readers = [await stack.enter_async_context(alice.subscribe(subject, f"n == {n}")) for n in range(subscriptions)]
    for name in ("s2", "s3", "s4"):
        async with domain.agent(name, "bob") as bob:
            for n in range(subscriptions):
                await bob.publish(subject, {"n": n})
    for n, reader in enumerate(readers):
        assert await numbers(reader, 3) == [n] * 3


def test_changes_of_interest_are_datagrams_to_all_servers(domain: Domain) -> None:
    async def story() -> None:
        async with domain.servers() as servers, AsyncExitStack() as stack:
            await subscribe_and_publish(domain, stack, 3)
            found = counted(servers["s1"])
            assert all(sent >= 3 for sent, _ in found.values()), found
            assert sum(repaired for _, repaired in found.values()) <= 3, "confirmations take milliseconds"

    run(story())


def test_lost_datagrams_are_repaired_on_links(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(1_000))
    lose(monkeypatch, lambda: next(turns) % 2 == 0)

    async def story() -> None:
        async with domain.servers() as servers, AsyncExitStack() as stack:
            await subscribe_and_publish(domain, stack, 4)
            found = counted(servers["s1"])
            assert all(sent > 0 and repaired > 0 for sent, repaired in found.values()), found

    run(story())


def test_a_network_without_multicast_costs_some_datagrams_and_one_line(
    domain: Domain, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    datagrams = Counter[str]()

    def is_lost() -> bool:
        datagrams["lost"] += 1
        return True

    lose(monkeypatch, is_lost)

    async def story() -> None:
        async with domain.servers(), AsyncExitStack() as stack:
            await subscribe_and_publish(domain, stack, MISSES_MAX + 4)

    with caplog.at_level(logging.WARNING, "wanderbus.server"):
        run(story())
    assert datagrams["lost"] == MISSES_MAX
    (line,) = [each.getMessage() for each in caplog.records if "multicast" in each.getMessage()]
    assert re.search(rf"are not confirmed by s[234] within {CONFIRM_S:g} s", line)


def test_an_unusable_group_ends_the_start_with_one_line(tmp_path: Path) -> None:
    table = multicast_table("239.255.7.1:5602", interface="none7")
    domain = Domain(tmp_path / "domain", 1, keys='model = "decentralised"', tables=table)

    async def story() -> None:
        async with domain.server("s1"):
            pass

    with pytest.raises(ConfigurationError) as found:
        run(story())
    assert str(found.value) == (
        "the multicast group 239.255.7.1:5602 cannot be joined on none7: No such device; "
        "look at multicast in event_domain"
    )
