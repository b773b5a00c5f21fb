"""Two home domains on hosts of their own, found in the DNS; the users of one move at the broker of the other (D-13)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.internet import PUBLIC, Internet
from tests.certificates import certify, make_certificates
from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import BOB, RELAY, SERVER
from tests.interop.nat.programs import PASSWORDS, Program
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

pytestmark = pytest.mark.interop(
    peer="two domains", scenario="users move at a broker of another domain, found in the DNS", transport="TLS"
)

HOME = RELAY
"""The host of the users' home server."""

HOME_TLS, BROKER_TLS = 5061, 5071
STEADY_S, HEAL_S_MAX = 0.4, 22.0


class Names:
    """The name server, as a program on the broker's host."""

    def __init__(self, internet: Internet, zone: Path) -> None:
        place = internet.address(SERVER)
        argv = python("tests.name_server", place, str(zone))
        self._argv = internet.namespaces.command(SERVER, argv)
        self._said = zone.with_suffix(".said")
        self._life = contextlib.ExitStack()

    def start(self) -> None:
        process = self._life.enter_context(Process("the name server", self._argv, self._said))
        process.wait_until(lambda: "ready" in self._said.read_text())

    def end(self) -> None:
        self._life.close()


def two_domains(internet: Internet, work: Path) -> Mapping[str, Any]:
    """Return the name server and both servers, of which neither has a route to the other."""
    home, broker = internet.address(HOME), internet.address(SERVER)
    authority = make_certificates(work).authority
    zone = work / "zone"
    zone.write_text(
        'b.example NAPTR 10 10 "s" "SIPS+D2T" "" _sips._tcp.b.example.\n'
        f"_sips._tcp.b.example SRV 10 0 {BROKER_TLS + 1} down.b.example.\n"
        f"_sips._tcp.b.example SRV 20 0 {BROKER_TLS} up.b.example.\n"
        f"down.b.example A {broker}\nup.b.example A {broker}\na.example A {home}\n"
    )
    domains: dict[str, Any] = {"ca_file": str(authority), "name_servers": [broker]}
    at_home = {
        "domain": "a.example",
        "host": home,
        "tls_port": HOME_TLS,
        "users": PASSWORDS,
        "data_dir": str(work / HOME),
        "tls_certificate": str(certify(work, "a", f"DNS:a.example,IP:{home}")),
        "domains": {**domains, "trusted": ["b.example"]},
    }
    at_broker = {
        "domain": "b.example",
        "host": broker,
        "tls_port": BROKER_TLS,
        "users": {},
        "user_domains": ["a.example"],
        "data_dir": str(work / SERVER),
        "tls_certificate": str(certify(work, "b", f"DNS:b.example,IP:{broker}")),
        "domains": {**domains, "trusted": ["a.example"]},
    }
    return {
        "names": Names(internet, zone),
        HOME: Program(internet, HOME, "proxy", at_home, work),
        SERVER: Program(internet, SERVER, "up", at_broker, work),
    }


@pytest.mark.parametrize("moves", [(PUBLIC, PUBLIC)], ids=["in public"])
def test_a_user_moves_at_a_broker_of_another_domain(
    set_stage: SetStage, moves: tuple[str, ...], tmp_path: Path
) -> None:
    """The server that SRV names first is down; the second is tried."""

    def agent(internet: Internet, user: str) -> dict[str, str]:
        return {
            "uri": f"sip:{user}@a.example",
            "server": f"{internet.address(HOME)}:{HOME_TLS}",
            "transport": "tls",
            "broker": "sip:broker@b.example",
            "ca_file": str(tmp_path / "authority.pem"),
        }

    with set_stage(layout=two_domains, alice=PUBLIC, bob=PUBLIC, agents=agent) as stage:
        stage.flow()
        for place in moves:
            time.sleep(STEADY_S)
            assert stage.healed_s(stage.move(BOB, place)) < HEAL_S_MAX
        stage.check(stage.hold())
