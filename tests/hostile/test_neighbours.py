"""Federations of the servers under attack: what they share, and with whom."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.absent_domain import ABSENT
from hostile import scene
from hostile.attack import DOMAIN, Attack
from hostile.neighbours import LIAR, RECEIVED, SECRET, SENT, alone_in_federation, neighbours
from hostile.server import Server
from hostile.table import ATTACKS
from wanderbus.runtime.files.federation_file import read_federation


class NoNetwork:
    """A network that is never used."""


@pytest.mark.parametrize(("host", "absent"), [("10.77.0.1", "10.77.0.250"), ("fd77:0:0:1::1", "fd77:0:0:fa::1")])
def test_a_domain_that_shares_with_one_that_is_never_there(tmp_path: Path, host: str, absent: str) -> None:
    file, gateway = alone_in_federation(tmp_path, host)
    federation = read_federation(file)
    assert federation.domains == (ABSENT,)
    assert federation.gateways[gateway] == (host, 5900)
    assert federation.links_of(gateway)[f"{ABSENT}/g1"][0] == (absent, 5900)
    assert federation.sends(ABSENT) == federation.receives(ABSENT) == {SENT}


def test_the_honest_domain_shares_no_secrets_and_the_liar_wants_them(tmp_path: Path) -> None:
    neighbours(NoNetwork(), tmp_path, ["u"], tmp_path / "orders")  # type: ignore[arg-type]
    honest, liar = (read_federation(tmp_path / name / "federation.toml") for name in ("honest", "liar"))
    assert (honest.sends(LIAR), honest.receives(LIAR)) == (frozenset({SENT}), frozenset({RECEIVED}))
    assert liar.receives(DOMAIN) == liar.sends(DOMAIN) == {SENT, RECEIVED, SECRET}
    assert honest.domains == (ABSENT, LIAR)
    assert honest.public_key != liar.public_key


@pytest.mark.parametrize("is_federated", [True, False])
def test_a_server_under_attack_shares_events_if_that_is_asked(tmp_path: Path, is_federated: bool) -> None:
    attack: Attack = ATTACKS[0]
    made: Any = scene.Scene(attack, NoNetwork(), tmp_path, (1.0, 1.0), is_federated=is_federated)  # type: ignore[arg-type]
    assert isinstance(made._server, Server)
    given = tomllib.loads(made._server._settings.read_text())
    assert given.get("federation") == (str(tmp_path / "federation.toml") if is_federated else None)
    assert given.get("federation_gateway") == ("g1" if is_federated else None)
