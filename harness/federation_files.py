"""Files of several domains that share all events of some types: what their operators write with ``federation``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from wanderbus.runtime.files.federation_file import card_of, create_federation, put_domain, read_federation
from wanderbus.settings.federation import ForeignDomainSettings


class GatewayPlace(NamedTuple):
    """The gateway of a domain: its name and its address."""

    name: str
    address: str


def share_types(
    files: Mapping[str, Path],
    gateways: Mapping[str, GatewayPlace],
    types: Sequence[str],
    reached: Mapping[tuple[str, str], str] = {},
    *,
    sessions_move: bool = False,
) -> None:
    """Write the file and the key of each domain, by its name; each sends the types to all others, and receives them.

    ``reached`` has the address at which the gateway of one domain reaches that of another, if it is not its own. With
    ``sessions_move``, sessions of users may move between all of them, and those of visitors do.
    """
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        create_federation(file, name, {gateways[name].name: gateways[name].address})
    for name, file in files.items():
        for other, gateway in gateways.items():
            if other == name:
                continue
            foreign = ForeignDomainSettings(
                public_key=card_of(read_federation(files[other])).public_key,
                gateways={gateway.name: reached.get((name, other), gateway.address)},
                receive=tuple(types),
                send=tuple(types),
                gives_sessions=sessions_move,
                takes_sessions=sessions_move,
                visitors="move" if sessions_move else "own",
            )
            put_domain(file, other, foreign)
