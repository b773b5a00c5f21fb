"""The file of an event domain, changed for the network of a run: places and roles of its servers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

LINK_PORT: Final = 5601


class Place(NamedTuple):
    """Place of a server: its IP address, the port of its SIP, its roles, the port of its links to other servers, the
    networks near to it, and its address for other servers if that is another one.
    """

    host: str
    sip_port: int
    roles: Sequence[str]
    link_port: int = LINK_PORT
    networks: Sequence[str] = ()
    link_host: str = ""


def place_servers(file: Path, places: Mapping[str, Place], tables: str = "") -> None:
    """Give each server in ``file``, as ``wanderbus domain init`` writes it, its place; append ``tables``."""
    lines, server = list[str](), ""
    for line in file.read_text().splitlines():
        if line.startswith("[servers."):
            server = line.removeprefix("[servers.").removesuffix("]")
        match line.partition(" =")[0]:
            case "address":
                place = places[server]
                line = f'address = "{place.link_host or place.host}:{place.link_port}"'
            case "sip":
                line = f'sip = "{places[server].host}:{places[server].sip_port}"'
            case "roles":
                place = places[server]
                line = f"roles = {json.dumps(list(place.roles))}"
                if place.networks:
                    line += f"\nnetworks = {json.dumps(list(place.networks))}"
        lines.append(line)
    file.write_text("\n".join([*lines, tables]) + "\n")
