"""Federation of a domain with a foreign domain that is never there: other promises hold beside the search for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wanderbus.machine import Address, shown
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.runtime.files.federation_file import create_federation, put_domain
from wanderbus.settings.federation import ForeignDomainSettings

ABSENT: Final = "absent.test"
GATEWAY_PORT: Final = 5900
NOBODY: Final[Address] = ("127.255.9.9", GATEWAY_PORT)
"""Address on loopback where nobody answers."""

_KEY: Final = KeyPair(b"\5" * KEY_BYTES).public.hex()


def federation_alone(
    directory: Path, name: str, gateways: Mapping[str, Address], types: Sequence[str], absent: Address = NOBODY
) -> Path:
    """Write the file of a federation of the domain ``name`` that shares ``types`` with the absent one; return its path.

    :param gateways: own gateways, each with its address for other domains
    :param absent: address of the gateway of the absent domain
    """
    file = directory / "federation.toml"
    create_federation(file, name, {gateway: shown(address) for gateway, address in gateways.items()})
    add_absent(file, types, absent)
    return file


def add_absent(file: Path, types: Sequence[str], absent: Address) -> None:
    """Share ``types`` with the absent domain, too."""
    several = tuple(types)
    gateways = {"g1": shown(absent)}
    put_domain(file, ABSENT, ForeignDomainSettings(public_key=_KEY, gateways=gateways, receive=several, send=several))
