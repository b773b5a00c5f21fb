"""Rows of the mobility matrix in which a session goes to another domain while its device's NAT changes (U-09)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.certificate import Authority
from harness.federation_files import GatewayPlace, share_types
from harness.internet import PUBLIC, Internet
from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import BOB, EAST, RELAY, SERVER, SOUTH
from tests.interop.nat.programs import DOMAIN, PASSWORDS, Program
from tests.interop.nat.sides import SUBJECT
from tests.interop.nat.stage import Stage
from tests.interop.nat.test_matrix_rows import HEAL_S_MAX, STEADY_S, over_either

OTHER = "other.example"
HOSTS = {DOMAIN: SERVER, OTHER: RELAY}
TLS_PORT = 5061
GATEWAY = "gate"
GATEWAY_PORT = 5900


def two_domains(internet: Internet, work: Path) -> Mapping[str, Program]:
    """Return a server of the domain of both users, and one of another domain; sessions may move between the two."""
    addresses = {name: internet.address(host) for name, host in HOSTS.items()}
    files = {name: work / name / "federation.toml" for name in HOSTS}
    gateways = {name: GatewayPlace(GATEWAY, f"{address}:{GATEWAY_PORT}") for name, address in addresses.items()}
    share_types(files, gateways, (SUBJECT,), sessions_move=True)
    authority = Authority(work)

    def settings(name: str) -> Mapping[str, Any]:
        (other,) = HOSTS.keys() - {name}
        return {
            "domain": name,
            "host": addresses[name],
            "tls_port": TLS_PORT,
            "tls_certificate": str(authority.certify(f"{name}-server", name, addresses[name])),
            "data_dir": str(work / name / "data"),
            "users": PASSWORDS if name == DOMAIN else {},
            "user_domains": [other],
            "federation": str(files[name]),
            "federation_gateway": GATEWAY,
            "domains": {
                "lookup": False,
                "ca_file": str(authority.file),
                "trusted": [other],
            },
            "domains.routes": {f'"{other}"': [f"{addresses[other]}:{TLS_PORT}"]},
        }

    return {host: Program(internet, host, "up", settings(name), work) for name, host in HOSTS.items()}


def over_tls(work: Path, internet: Internet, user: str) -> Mapping[str, str]:
    """Return the settings of an agent that trusts the brokers of both domains: what its own proxy says of them."""
    return {
        "server": f"{internet.address(SERVER)}:{TLS_PORT}",
        "transport": "tls",
        "ca_file": str(work / "authority.pem"),
    }


def check(set_stage: SetStage, work: Path, transport: str, bob: str, change: Callable[[Stage], Any]) -> None:
    """Change something while the subscriber's session goes to the other domain, and again while it comes back."""
    agents = partial(over_tls, work)
    with set_stage(layout=two_domains, transport=transport, alice=PUBLIC, bob=bob, agents=agents) as stage:
        stage.flow()
        for domain in (OTHER, DOMAIN):
            time.sleep(STEADY_S)
            moment_s = time.monotonic()
            stage.hand_over(domain, lambda: change(stage))
            assert stage.healed_s(moment_s) < HEAL_S_MAX
        stage.check(stage.hold())


@over_either
@pytest.mark.interop(peer="NAT", scenario="the session goes to another domain while the NAT forgets its mappings")
def test_another_domain_and_port(set_stage: SetStage, tmp_path: Path, transport: str) -> None:
    check(set_stage, tmp_path, transport, SOUTH, lambda stage: stage.rebind(SOUTH))


@over_either
@pytest.mark.interop(peer="NAT", scenario="the session goes to another domain while the subscriber moves behind a NAT")
def test_another_domain_and_nat(set_stage: SetStage, tmp_path: Path, transport: str) -> None:
    places = iter((SOUTH, EAST))
    check(set_stage, tmp_path, transport, PUBLIC, lambda stage: stage.move(BOB, next(places)))
