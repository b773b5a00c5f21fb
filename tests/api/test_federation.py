"""Domains of one server each that share events, on loopback, and agents at them (SPEC M-01, S-01)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import wanderbus
from tests.api.federated_domains import FederatedDomains
from tests.api.world import SUBJECT, filters_settled, nothing_more, numbers, run, service
from wanderbus.federation.routing_messages import METHODS, Method
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.federation_file import put_domain, put_method, read_federation, remove_domain

NAMES = ("alpha.test", "beta.test", "gamma.test")


def test_s01_events_reach_subscribers_of_all_domains_once_and_in_order(tmp_path: Path) -> None:
    domains = FederatedDomains(tmp_path, NAMES)

    async def story() -> None:
        async with domains.servers() as servers, AsyncExitStack() as stack:
            readers = []
            for name in NAMES:
                agent = await stack.enter_async_context(domains.agent(name))
                readers.append(await stack.enter_async_context(agent.subscribe(SUBJECT, "n >= 5")))
            await filters_settled(servers["alpha.test"], 2)
            bob = await stack.enter_async_context(domains.agent("alpha.test", "bob"))
            for number in range(30):
                await bob.publish(SUBJECT, {"n": number})
            for reader in readers:
                assert await numbers(reader, 25) == list(range(5, 30))
                await nothing_more(reader)
            rows = {row["domain"]: row for row in service(servers["alpha.test"]).machine.federation_rows()}
            assert {name: row["sent"] for name, row in rows.items()} == {"beta.test": 25, "gamma.test": 25}

    run(story())


@pytest.mark.parametrize("method", METHODS)
def test_m05_subscribers_receive_the_same_by_each_method(tmp_path: Path, method: Method) -> None:
    """Alpha and beta have no link of their own with the method tree."""
    apart = [frozenset(NAMES[:2])] if method == "tree" else []
    domains = FederatedDomains(tmp_path, NAMES, method=method, apart=apart)

    async def story() -> None:
        async with domains.servers() as servers, AsyncExitStack() as stack:
            readers = []
            for name, wanted in zip(NAMES, ("n < 4", "n >= 2", "n == 1 or n > 7"), strict=True):
                agent = await stack.enter_async_context(domains.agent(name))
                readers.append(await stack.enter_async_context(agent.subscribe(SUBJECT, wanted)))
            for each in servers.values():
                await filters_settled(each, 2)
            bob = await stack.enter_async_context(domains.agent("alpha.test", "bob"))
            for number in range(10):
                await bob.publish(SUBJECT, {"n": number})
            for reader, expected in zip(readers, ([0, 1, 2, 3], [*range(2, 10)], [1, 8, 9]), strict=True):
                assert await numbers(reader, len(expected)) == expected
                await nothing_more(reader)

    run(story())


def test_events_wait_for_a_domain_whose_server_is_down(tmp_path: Path) -> None:
    domains = FederatedDomains(tmp_path, NAMES[:2])

    async def story() -> None:
        async with domains.server("alpha.test") as alpha, domains.agent("alpha.test", "bob") as bob:
            async with (
                domains.server("beta.test"),
                domains.agent("beta.test") as agent,
                agent.subscribe(SUBJECT, "", keep=True) as reader,
            ):
                await filters_settled(alpha, 1)
                await bob.publish(SUBJECT, {"n": 0})
                assert await numbers(reader, 1) == [0]
            for number in range(1, 20):
                await bob.publish(SUBJECT, {"n": number})
            async with (
                domains.server("beta.test"),
                domains.agent("beta.test") as agent,
                agent.subscribe(SUBJECT, "", keep=True) as reader,
            ):
                assert await numbers(reader, 19) == list(range(1, 20))
                await nothing_more(reader)

    run(story())


def test_m01_a_changed_file_is_used_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    domains = FederatedDomains(tmp_path, NAMES[:2])
    file = domains.files["alpha.test"]
    foreign = read_federation(file).settings.domains["beta.test"]

    async def used(server: wanderbus.Server, *names: str) -> None:
        while [row["domain"] for row in service(server).machine.federation_rows()] != [*names]:
            await asyncio.sleep(0.01)

    async def story() -> None:
        async with domains.servers() as servers, domains.agent("alpha.test", "bob") as bob:
            alpha = servers["alpha.test"]
            async with domains.agent("beta.test") as agent, agent.subscribe(SUBJECT, "") as reader:
                await filters_settled(alpha, 1)
                put_method(file, SUBJECT, "rendezvous")
                while not any("has changed" in each.message for each in caplog.records):
                    await bob.publish(SUBJECT, {"n": 0})
                    assert await numbers(reader, 1) == [0]
                remove_domain(file, "beta.test")
                await used(alpha)
                await bob.publish(SUBJECT, {"n": 1})
                text = file.read_text()
                file.write_text(text + "nonsense")
                while not any("is not used" in each.message for each in caplog.records):
                    await asyncio.sleep(0.01)
                assert service(alpha).machine.federation_rows() == ()
                file.write_text(text)
                put_domain(file, "beta.test", foreign)
                await used(alpha, "beta.test")
                await filters_settled(alpha, 1)
                await bob.publish(SUBJECT, {"n": 2})
                assert await numbers(reader, 1) == [2]
                await nothing_more(reader)

    run(story())


def test_an_operator_sees_the_foreign_domains(tmp_path: Path) -> None:
    domains = FederatedDomains(tmp_path, NAMES[:2])

    async def story() -> None:
        broker = BrokerConfig(roles={"sip:bob@alpha.test": "operator"})
        async with (
            domains.server("alpha.test", broker=broker) as alpha,
            domains.server("beta.test"),
            domains.agent("beta.test") as agent,
            agent.subscribe(SUBJECT),
        ):
            await filters_settled(alpha, 1)
            async with domains.agent("alpha.test", "bob") as bob:
                (row,) = [each async for each in bob.operator.foreign_domains()]
        assert (row.domain, row.is_linked, row.is_settled, row.filters, row.trouble) == ("beta.test", True, True, 1, "")

    run(story())


def test_m02_an_event_after_a_subscription_that_counts_everywhere_arrives(tmp_path: Path) -> None:
    domains = FederatedDomains(tmp_path, NAMES)

    async def story() -> None:
        async with domains.servers() as servers, AsyncExitStack() as stack:
            for each in servers.values():
                while not all(row["is_linked"] for row in service(each).machine.federation_rows()):
                    await asyncio.sleep(0.01)
            bob = await stack.enter_async_context(domains.agent("alpha.test", "bob"))
            for number, name in enumerate(NAMES):
                agent = await stack.enter_async_context(domains.agent(name))
                async with agent.subscribe(SUBJECT, effective="everywhere") as reader:
                    await bob.publish(SUBJECT, {"n": number})
                    assert await numbers(reader, 1) == [number]

    run(story())


CHAIN = ("beta.test", "alpha.test", "delta.test", "gamma.test")


def test_m04_events_pass_along_a_chain_of_domains_while_one_between_them_is_away(tmp_path: Path) -> None:
    apart = [frozenset(each) for each in (("beta.test", "delta.test"), ("beta.test", "gamma.test"))]
    apart.append(frozenset(("alpha.test", "gamma.test")))
    domains = FederatedDomains(tmp_path, CHAIN, method="tree", apart=apart)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            ends = [await stack.enter_async_context(domains.server(each)) for each in ("beta.test", "gamma.test")]
            await stack.enter_async_context(domains.server("alpha.test"))
            agents = [await stack.enter_async_context(domains.agent(each)) for each in ("beta.test", "gamma.test")]
            readers = [await stack.enter_async_context(each.subscribe(SUBJECT, "n >= 5")) for each in agents]
            bob = await stack.enter_async_context(domains.agent("beta.test", "bob"))
            async with domains.server("delta.test"):
                await filters_settled(ends[0], 1)
                await filters_settled(ends[1], 1)
                (through,) = [
                    row["through"]
                    for row in service(ends[0]).machine.federation_rows()
                    if row["domain"] == "gamma.test"
                ]
                assert through == ("alpha.test", "delta.test")
                for number in range(30):
                    await bob.publish(SUBJECT, {"n": number})
                assert [await numbers(each, 25) for each in readers] == [list(range(5, 30))] * 2
            for number in range(30, 60):
                await bob.publish(SUBJECT, {"n": number})
            async with domains.server("delta.test"):
                assert [await numbers(each, 30) for each in readers] == [list(range(30, 60))] * 2
                for reader in readers:
                    await nothing_more(reader)

    run(story())
