"""The network of the demonstration's hosts, and changes of their addresses.

Three networks with one interface. :class:`~demo.namespace_networks.NamespaceNetwork` gives every host a network
namespace of its own behind a router, so that an address is really replaced by another; in
:class:`~demo.namespace_networks.NatNetwork` these routers are NATs. :class:`LoopbackNetwork` is the fallback where
namespaces cannot be created: hosts share 127.0.0.0/8 and get orders to use an address.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final, Protocol

from wanderbus.testbed import CannotRunError

SERVER: Final = "server"
"""Name of the host that the server runs on."""

SPARK: Final = "spark"
"""Name of the process of Spark, which runs on this machine beside all hosts."""

PLACES: Final = 4
"""Addresses that each host owns; it is at one of them at a time."""


class Network(Protocol):
    """A network of named hosts, each at one of its :data:`PLACES` addresses."""

    mode: str
    """``netns``, ``nat`` or ``loopback``, as in the results."""

    needs_order: bool
    """A process needs an order to change its address: True on loopback, False where the kernel shows the change."""

    def open(self) -> None:
        """Build the network; :class:`CannotRunError` if it cannot be built here, leaving nothing behind."""
        ...

    def close(self) -> None:
        """Remove everything that was built; no harm if called twice or halfway."""
        ...

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on ``host`` with exec."""
        ...

    def address(self, host: str) -> str:
        """Return the present address of ``host``."""
        ...

    def address_at(self, host: str, place: int) -> str:
        """Return the address of which others see ``host`` at one of its places, which are numbered from 0."""
        ...

    def move(self, host: str) -> str:
        """Move ``host`` to its next address, at once and without a notice to its peers; return that address."""
        ...


class LoopbackNetwork:
    """Hosts on 127.42.<host>.<place>: one machine, different addresses, changed by an order to the process."""

    mode = "loopback"
    needs_order = True

    def __init__(self, hosts: Sequence[str]) -> None:
        self._places = dict.fromkeys(hosts, 0)
        self._numbers = {host: number for number, host in enumerate(hosts, start=1)}

    def open(self) -> None:
        """Check that this machine answers on all of 127.0.0.0/8."""
        for host in self._places:
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.bind((self.address(host), 0))
            except OSError as error:
                raise CannotRunError(f"cannot use {self.address(host)} on the loopback interface: {error}") from None

    def close(self) -> None:
        """Do nothing: nothing was built."""

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return ``argv`` as it is."""
        return list(argv)

    def address(self, host: str) -> str:
        """Return the present address of ``host``."""
        return self.address_at(host, self._places[host])

    def address_at(self, host: str, place: int) -> str:
        """Return the address of ``host`` at a place."""
        return f"127.42.{self._numbers[host]}.{place + 1}"

    def move(self, host: str) -> str:
        """Choose the next address; the caller orders the process to use it."""
        self._places[host] = (self._places[host] + 1) % PLACES
        return self.address(host)


def choose(mode: str, hosts: Sequence[str]) -> tuple[Network, str]:
    """Return an open network for ``mode`` (``auto``, ``netns``, ``nat`` or ``loopback``) and one line with the reason
    for that choice.

    Raises :class:`CannotRunError` if the requested mode is not possible; ``auto`` falls back to loopback.
    """
    from demo.namespace_networks import NamespaceNetwork, NatNetwork

    if mode == "nat":
        behind_nat = NatNetwork(hosts)
        behind_nat.open()
        return behind_nat, "everybody but the server is behind a NAT, and moves to another one"
    fallen = ""
    if mode != "loopback":
        network = NamespaceNetwork(hosts)
        try:
            network.open()
        except CannotRunError as error:
            if mode == "netns":
                raise
            fallen = f" (no network namespaces here: {error})"
        else:
            return network, "addresses change in network namespaces joined by a router"
    loopback = LoopbackNetwork(hosts)
    loopback.open()
    return loopback, f"addresses change across 127.0.0.0/8{fallen}"
