"""Domain of three servers, of which one lies to the other two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.domain_file import Place, place_servers
from hostile.attack import DOMAIN
from hostile.network import ATTACKER, SECOND, SERVER, Network
from hostile.server import PORTS, Liar, Server
from hostile.servers import Servers
from wanderbus.runtime.files.domain_file import create_domain

LIAR: Final = "s3"
PLACES: Final = {
    "s1": Place(SERVER, PORTS["port"], ("access", "resolution", "directory")),
    "s2": Place(SECOND, PORTS["port"], ("access", "resolution")),
    LIAR: Place(ATTACKER, PORTS["port"], ("access",)),
}


def domain(network: Network, directory: Path, users: Sequence[str], orders: Path) -> Servers:
    """Return the servers of a domain; ``orders`` is the directory of the liar."""
    file = create_domain(directory / "domain", DOMAIN, len(PLACES))
    place_servers(file, PLACES)
    made = {}
    for name, place in PLACES.items():
        own = directory / name
        own.mkdir()
        liar = Liar("hostile.lying_server", orders) if name == LIAR else None
        made[name] = Server(network, own, users, host=place.host, member=(file, name), liar=liar)
    return Servers([each for name, each in made.items() if name != LIAR], made[LIAR])
