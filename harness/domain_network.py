"""Network of several domains: each is a network of its own behind a router that can cut any two of them apart.

::

    domain 0: 10.79.0.1, 10.79.0.2, ... ──┐
    domain 1: 10.79.1.1, 10.79.1.2, ... ──┼── router
    domain 2: 10.79.2.1, 10.79.2.2, ... ──┘

A domain is one network namespace, which takes root. :class:`LoopbackDomains` has addresses on loopback instead, and
cuts nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final, Protocol

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import Namespaces

_ROUTER: Final = "router"
_ROUTER_HOST: Final = 254


class DomainNetwork(Protocol):
    """A network of domains, which are numbered from 0."""

    mode: str
    """``netns`` or ``loopback``, as in the results."""

    def open(self) -> None:
        """Build the network; :class:`CannotRunError` if it cannot be built here, leaving nothing behind."""
        ...

    def close(self) -> None:
        """Remove everything that was built; no harm if called twice or halfway."""
        ...

    def command(self, domain: int, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in a domain, under the same process id."""
        ...

    def address(self, domain: int, host: int) -> str:
        """Return the address of a host of a domain; hosts are numbered from 1."""
        ...

    def cut(self, source: int, target: int) -> None:
        """Drop all packets from one domain to another from now on, without a notice to either."""
        ...

    def heal(self, source: int, target: int) -> None:
        """Pass these packets on again."""
        ...


class NamespaceDomains:
    """Domains in network namespaces; see the module."""

    mode = "netns"

    def __init__(self, domains: int, hosts: int) -> None:
        self._domains = range(domains)
        self._hosts = range(1, hosts + 1)
        self._made = Namespaces("wbdomains")

    def open(self) -> None:
        """Build all namespaces, and the routes between them."""
        with self._made.building():
            self._made.add(_ROUTER, *self._domains)
            self._made.forward(_ROUTER)
            for domain in self._domains:
                port, router = f"domain{domain}", self.address(domain, _ROUTER_HOST)
                self._made.join(_ROUTER, port, domain, "wan")
                self._made.configure(_ROUTER, [f"address add {router}/24 dev {port}", f"link set {port} up"])
                hosts = [f"address add {self.address(domain, host)}/24 dev wan" for host in self._hosts]
                self._made.configure(domain, [*hosts, "link set wan up", f"route add default via {router}"])

    def close(self) -> None:
        """Remove all namespaces."""
        self._made.remove()

    def command(self, domain: int, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace of a domain."""
        return self._made.command(domain, argv)

    def address(self, domain: int, host: int) -> str:
        """Return the address of a host in the network of its domain."""
        return f"10.79.{domain}.{host}"

    def cut(self, source: int, target: int) -> None:
        """Let the router discard what goes from one domain to the other."""
        self._made.configure(_ROUTER, [f"rule add {self._way(source, target)}"])

    def heal(self, source: int, target: int) -> None:
        """Let the router pass it on again."""
        self._made.configure(_ROUTER, [f"rule delete {self._way(source, target)}"])

    def _way(self, source: int, target: int) -> str:
        return f"from 10.79.{source}.0/24 to 10.79.{target}.0/24 blackhole"


class LoopbackDomains:
    """Domains on loopback, under addresses that no other run has; nothing can be cut."""

    mode = "loopback"

    def __init__(self) -> None:
        self._network = f"127.{secrets.randbelow(254) + 1}"

    def open(self) -> None:
        """Do nothing: the addresses are there."""

    def close(self) -> None:
        """Do nothing."""

    def command(self, domain: int, argv: Sequence[str]) -> list[str]:
        """Return the command line as it is."""
        return [*argv]

    def address(self, domain: int, host: int) -> str:
        """Return a loopback address."""
        return f"{self._network}.{domain}.{host}"

    def cut(self, source: int, target: int) -> None:
        """Raise :class:`CannotRunError`."""
        raise CannotRunError("links on loopback cannot be cut")

    def heal(self, source: int, target: int) -> None:
        """Raise :class:`CannotRunError`."""
        raise CannotRunError("links on loopback cannot be cut")


def open_domains(mode: str, domains: int, hosts: int) -> tuple[DomainNetwork, str]:
    """Build the network ``mode``, and with ``auto`` the best one here; return it with a line about it.

    Raises :class:`CannotRunError` if ``mode`` is another and cannot be built.
    """
    if mode != "loopback":
        made: DomainNetwork = NamespaceDomains(domains, hosts)
        try:
            made.open()
        except CannotRunError as error:
            if mode != "auto":
                raise
            return LoopbackDomains(), f"domains on loopback, whose links are not cut: {error}"
        return made, "domains in network namespaces, with a router between them"
    return LoopbackDomains(), "domains on loopback, whose links are not cut"
