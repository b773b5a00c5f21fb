"""Networks of namespaces, one for each host. In the plain one they are joined by a router in a namespace of its own::

    host h: eth0 10.42.<16h+place>.2/24 ──veth── w<h> 10.42.<16h+0..3>.1/24 :router, forwarding

The router is the gateway of every place of every host, so a host changes place by losing its address and default
route and getting others, in another subnet, like a device that leaves one network and joins the next. In the other
network the hosts are behind NATs of a small internet (:mod:`harness.internet`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from demo.network import PLACES
from harness.internet import PUBLIC, Internet, Nat
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import Namespaces

_ROUTER: Final = "router"

_NATS: Final = {
    "home": Nat.PORT_RESTRICTED,
    "cafe": Nat.SYMMETRIC,
    "office": Nat.PORT_RESTRICTED,
    "train": Nat.SYMMETRIC,
}
"""NAT routers, as many as there are places."""


class NamespaceNetwork:
    """See the module; ``hosts`` are at most 15 names."""

    mode = "netns"
    needs_order = False

    def __init__(self, hosts: Sequence[str]) -> None:
        self._numbers = {host: number for number, host in enumerate(hosts)}
        self._places = dict.fromkeys(hosts, 0)
        self._namespaces = Namespaces("wbdemo")

    def open(self) -> None:
        """Build the network and send one datagram across it; :class:`CannotRunError` if any of it fails."""
        with self._namespaces.building():
            self._build()
            self._check()

    def close(self) -> None:
        """Remove the namespaces."""
        self._namespaces.remove()

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace of ``host``, under the same process id."""
        return self._namespaces.command(host, argv)

    def address(self, host: str) -> str:
        """Return the present address of ``host``."""
        return self.address_at(host, self._places[host])

    def address_at(self, host: str, place: int) -> str:
        """Return the address of ``host`` at a place."""
        return f"{self._subnet(host, place)}.2"

    def move(self, host: str) -> str:
        """Remove the address and the default route of ``host`` and give it those of its next place."""
        old = self.address(host)
        self._places[host] = (self._places[host] + 1) % PLACES
        self._namespaces.configure(host, [f"address delete {old}/24 dev eth0", *self._arrive(host)])
        return self.address(host)

    def _subnet(self, host: str, place: int) -> str:
        return f"10.42.{16 * self._numbers[host] + place}"

    def _arrive(self, host: str) -> list[str]:
        subnet = self._subnet(host, self._places[host])
        return [f"address add {subnet}.2/24 dev eth0", f"route replace default via {subnet}.1 dev eth0"]

    def _build(self) -> None:
        self._namespaces.add(_ROUTER, *self._numbers)
        router = []
        for host, number in self._numbers.items():
            port = f"w{number}"
            self._namespaces.join(_ROUTER, port, host, "eth0")
            router += [f"address add {self._subnet(host, place)}.1/24 dev {port}" for place in range(PLACES)]
            router.append(f"link set {port} up")
            self._namespaces.configure(host, ["link set eth0 up", *self._arrive(host)])
        self._namespaces.configure(_ROUTER, router)
        self._namespaces.forward(_ROUTER)

    def _check(self) -> None:
        first, *_, last = self._numbers
        if self._namespaces.source_seen(first, self.address(first), by=last) != self.address(last):
            raise CannotRunError("the router does not forward")


class NatNetwork:
    """Network in which the first host is public; every other is behind a NAT, and moves from one NAT to another.

    There are as many routers as places. Hosts begin behind different ones, several with the same private address, and
    each visits all of them in turn.
    """

    mode = "nat"
    needs_order = False

    def __init__(self, hosts: Sequence[str]) -> None:
        self._public, *private = hosts
        self._numbers = {host: number for number, host in enumerate(private)}
        self._places = dict.fromkeys(hosts, 0)
        self._internet = Internet("wbdemo", _NATS, hosts)

    def open(self) -> None:
        """Build the network, and check that a router translates a datagram; :class:`CannotRunError` if any of it
        fails.
        """
        self._internet.open()
        self._internet.plug(self._public, PUBLIC, 0)
        for host in self._numbers:
            self._arrive(host)

    def close(self) -> None:
        """Remove the namespaces."""
        self._internet.close()

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the namespace of ``host``, under the same process id."""
        return self._internet.namespaces.command(host, argv)

    def address(self, host: str) -> str:
        """Return the present address of ``host``: a host behind another NAT may have the same one."""
        return self._internet.address(host)

    def address_at(self, host: str, place: int) -> str:
        """Return the public address of the router at a place of ``host``."""
        return self._internet.public_address(self._router(host, place))

    def move(self, host: str) -> str:
        """Unplug ``host``, and plug it in behind the next router; return its private address there."""
        self._places[host] = (self._places[host] + 1) % PLACES
        return self._arrive(host)

    def _arrive(self, host: str) -> str:
        """Plug in ``host``: any four in a row are behind four routers, so no two share an address behind one router."""
        place, table = self._places[host], self._numbers[host] // PLACES
        return self._internet.plug(host, self._router(host, place), PLACES * table + place)

    def _router(self, host: str, place: int) -> str:
        return list(_NATS)[(self._numbers[host] + place) % PLACES]
