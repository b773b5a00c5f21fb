"""Decentralised domains with causal order between them, as servers on loopback, and agents at them (SPEC K-06)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from tests.api.federated_domains import FederatedDomains
from tests.api.world import SUBJECT, filters_settled, numbers, run, service
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.runtime.files.federation_file import put_domain, read_federation

NAMES = ("alpha.test", "beta.test", "gamma.test")
GATE = "gate"


class CausalDomains(FederatedDomains):
    """Domains whose channels are decentralised, and which ask for causal order with each other."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, NAMES)
        for name, file in self.files.items():
            event_domain = create_domain(file.parent / "domain", name, 1)
            (key,) = event_domain.parent.rglob("s1.key")
            key.rename(key.with_name(f"{GATE}.key"))
            (host,) = {each for each, _ in read_federation(file).gateways.values()}
            text = event_domain.read_text().replace("s1", GATE).replace("127.0.0.1", host)
            event_domain.write_text(f'model = "decentralised"\n{text}')
            self._ask(name, causal=True)

    def _ask(self, name: str, *, causal: bool) -> None:
        settings = read_federation(self.files[name]).settings
        for other, known in settings.domains.items():
            put_domain(self.files[name], other, msgspec.structs.replace(known, causal=causal))

    def started(self, name: str) -> Any:
        """Return the server of a domain, to be entered."""
        file = next((self.files[name].parent / "domain").glob("*.toml"))
        broker = BrokerConfig(roles={f"sip:alice@{name}": "operator"})
        return self.server(name, event_domain=file, event_server=GATE, broker=broker)


def test_k06_an_answer_in_another_domain_has_its_causes(tmp_path: Path) -> None:
    domains = CausalDomains(tmp_path)

    async def story() -> None:
        async with AsyncExitStack() as stack:
            servers = {name: await stack.enter_async_context(domains.started(name)) for name in NAMES}
            agents = {name: await stack.enter_async_context(domains.agent(name)) for name in NAMES}
            readers = {name: await stack.enter_async_context(agents[name].subscribe(SUBJECT)) for name in NAMES}
            for each in servers.values():
                await filters_settled(each, 2)
            for number, name in enumerate(NAMES):
                await agents[name].publish(SUBJECT, {"n": number})
                for reader in readers.values():
                    assert await numbers(reader, 1) == [number], "each answers the one before"
            rows = [each async for each in agents["gamma.test"].operator.foreign_domains()]
            assert [(each.domain, each.order, each.unordered) for each in rows] == [
                ("alpha.test", "causal", 0),
                ("beta.test", "causal", 0),
            ]
            causes = service(servers["gamma.test"]).broker.state.decentralised.domain_pasts.reached
            assert {"alpha.test/gate", "beta.test/gate"} == set(causes)

    run(story())
