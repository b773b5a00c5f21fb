"""Policy for the choice of an access server, and the facts that the choice is made from (SPEC J-01)."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Literal

import msgspec

from wanderbus.machine import Address

Choice = Literal["hash", "least_loaded"]
"""Rules of the choice among servers if no network of the caller names one."""


class NearestServer(msgspec.Struct, frozen=True):
    """The nearest access server for callers in ``network``: its ``host``, and its ``port`` if the host has several."""

    network: IPv4Network | IPv6Network
    host: str
    port: int | None = None


class AccessPolicy(msgspec.Struct, frozen=True):
    """The ``user`` at whose address of record the access servers register, and the rules to choose one of them."""

    user: str = "broker"
    choice: Choice = "hash"
    nearest: tuple[NearestServer, ...] = ()


class RegisteredServer(msgspec.Struct, frozen=True):
    """One registered access server: ``name`` is its instance, ``addresses`` are those under which it is known."""

    name: str
    addresses: tuple[Address, ...]


class AccessRequest(msgspec.Struct, frozen=True):
    """A request to the access servers.

    ``caller`` is the address of record of its sender, ``source`` the IP address it came from. A request that ``begins``
    a call is counted as load.
    """

    caller: str
    call_id: str
    source: str
    begins: bool
