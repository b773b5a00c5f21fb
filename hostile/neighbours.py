"""Two domains that share events, of which one lies to the other; and a foreign domain that is never there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.absent_domain import GATEWAY_PORT as PORT
from harness.absent_domain import add_absent, federation_alone
from hostile.attack import DOMAIN
from hostile.network import ATTACKER, SERVER, Network, as_ipv6
from hostile.server import Liar, Server
from hostile.servers import Servers
from wanderbus.runtime.files.federation_file import create_federation, put_domain, put_method
from wanderbus.settings.federation import ForeignDomainSettings

LIAR: Final = "liar.test"
GATEWAY: Final = "g1"
NOWHERE: Final = "10.77.0.250"
"""Address of a gateway that nobody has."""

SENT: Final = "Fact"
"""Type that the honest domain sends to the liar; good agents publish it."""

RECEIVED: Final = "Rumour"
"""Type that the honest domain receives from the liar, along a tree."""

SECRET: Final = "Secret"
"""Type that it shares with nobody."""

EVENTS_PER_S_MAX: Final = 100.0


def neighbours(network: Network, directory: Path, users: Sequence[str], orders: Path) -> Servers:
    """Return a server that is a domain, and one that is the liar's; ``orders`` is the directory of the liar."""
    honest, liar = directory / "honest", directory / "liar"
    files = {}
    for name, own, host in ((DOMAIN, honest, SERVER), (LIAR, liar, ATTACKER)):
        own.mkdir()
        files[name] = create_federation(own / "federation.toml", name, {GATEWAY: f"{host}:{PORT}"})
    # The liar wants, and sends, everything that it has heard of.
    everything = (SENT, RECEIVED, SECRET)
    _add(honest, LIAR, files[LIAR].settings.public_key, files[LIAR].settings.gateways, send=[SENT], receive=[RECEIVED])
    _add(liar, DOMAIN, files[DOMAIN].settings.public_key, files[DOMAIN].settings.gateways, everything, everything)
    put_method(honest / "federation.toml", RECEIVED, "tree")
    for own in (honest, liar):
        add_absent(own / "federation.toml", [SENT, RECEIVED], (NOWHERE, PORT))
    made = [
        Server(network, honest, users, federation=(honest / "federation.toml", GATEWAY)),
        Server(
            network,
            liar,
            users,
            host=ATTACKER,
            domain=LIAR,
            federation=(liar / "federation.toml", GATEWAY),
            liar=Liar("hostile.lying_domain", orders),
        ),
    ]
    return Servers(made[:1], made[1])


def alone_in_federation(directory: Path, host: str) -> tuple[Path, str]:
    """Return the file of a federation of this domain with one that is never there, and the name of the gateway."""
    absent = as_ipv6(NOWHERE) if ":" in host else NOWHERE
    return federation_alone(directory, DOMAIN, {GATEWAY: (host, PORT)}, [SENT], (absent, PORT)), GATEWAY


def _add(
    directory: Path,
    name: str,
    public_key: str,
    gateways: Mapping[str, str],
    send: Sequence[str],
    receive: Sequence[str],
) -> None:
    rate = EVENTS_PER_S_MAX if name == LIAR else None
    foreign = ForeignDomainSettings(
        public_key=public_key, gateways=gateways, send=tuple(send), receive=tuple(receive), events_per_s_max=rate
    )
    put_domain(directory / "federation.toml", name, foreign)
