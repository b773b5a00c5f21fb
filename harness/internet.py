"""A small internet: a public segment, NAT routers on it, and hosts that are plugged into any of them.

::

    server 203.0.113.100 ─┐                      ┌─ 192.168.1.1 north ─ 192.168.1.0/24 ─ host
                          ├─ public ─ 203.0.113.11
    host   203.0.113.101 ─┘          203.0.113.12 ─ 192.168.1.1 south ─ 192.168.1.0/24 ─ host

Every router has the same private network behind it, so that an address there does not show the location of a host.
All segments are bridges in one namespace; a host changes place when the other end of its cable is moved to another of
them. The public segment has no route to the private ones: packets from those are always translated.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import Namespaces

PUBLIC: Final = "public"

_CLOSET: Final = "closet"
"""The namespace where all cables end."""

_GATEWAY: Final = 1
_ROUTERS: Final = 11
_HOSTS: Final = 100
_NETWORKS: Final = ("203.0.113", "192.168.1")
"""Network prefixes: of the public segment (TEST-NET-3, RFC 5737) and of every private one."""

_REBOUND_PORTS: Final = range(20_000, 60_000, 1_000)
"""First ports of a router after each rebinding; no system uses them as ephemeral ports."""

_RULES: Final = """\
*nat
-A POSTROUTING -o wan -p udp -j MASQUERADE PORTS
-A POSTROUTING -o wan -p tcp -j MASQUERADE PORTS
COMMIT
*filter
:FORWARD DROP
-A INPUT -i wan -j DROP
-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A FORWARD -i lan -o wan -m conntrack --ctstate NEW -j ACCEPT
COMMIT
"""
"""Rules of a router, in the syntax of iptables-restore."""

_NETLINK_FORGET: Final = struct.pack("=IHHIIBBH", 20, 1 << 8 | 2, 1 | 4, 1, 0, 0, 0, 0)
"""NFNL_SUBSYS_CTNETLINK's IPCTNL_MSG_CT_DELETE of all connections, with an acknowledgement requested."""

_FORGET: Final = (
    "import socket, struct, sys; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)\n"
    "s.send(bytes.fromhex(sys.argv[1])); sys.exit(-struct.unpack_from('=i', s.recv(4096), 16)[0])"
)


class Nat(Enum):
    """Port mapping of a router; none accepts inbound packets without an outbound one before (RFC 4787 4.1, 5)."""

    PORT_RESTRICTED = "the port of inside where that is free, and the same one for every destination"
    SYMMETRIC = "another port for every destination"


class Internet:
    """See the module. ``kind`` is the prefix of the namespaces' names; at first no host is plugged in."""

    def __init__(self, kind: str, routers: Mapping[str, Nat], hosts: Sequence[str]) -> None:
        self._routers = dict(routers)
        self._hosts = tuple(hosts)
        self._addresses: dict[str, str] = {}
        self._rebindings = dict.fromkeys(routers, 0)
        self.namespaces = Namespaces(kind)

    def open(self) -> None:
        """Build it, and check that a router translates a datagram; :class:`CannotRunError` if any of it fails."""
        with self.namespaces.building("iptables-restore"):
            self._build()
            self._check()

    def close(self) -> None:
        """Remove everything."""
        self.namespaces.remove()

    def address(self, host: str) -> str:
        """Return the address of ``host``, or its last one."""
        return self._addresses[host]

    def address_at(self, segment: str, number: int) -> str:
        """Return the address that the host of this ``number`` has in ``segment``."""
        return f"{_NETWORKS[segment != PUBLIC]}.{_HOSTS + number}"

    def public_address(self, router: str) -> str:
        """Return the public address of the hosts behind ``router``."""
        return f"{_NETWORKS[0]}.{_ROUTERS + list(self._routers).index(router)}"

    def plug(self, host: str, segment: str, number: int) -> str:
        """Plug ``host`` from its present place into the network behind the router ``segment``, or into the public one,
        as the host of this ``number`` there; return its address.
        """
        network = _NETWORKS[segment != PUBLIC]
        address = self._addresses[host] = self.address_at(segment, number)
        self.unplug(host)
        self.namespaces.configure(_CLOSET, [f"link set {self._port(host)} master {segment}"])
        routes = [] if segment == PUBLIC else [f"route add default via {network}.{_GATEWAY} dev eth0"]
        self.namespaces.configure(host, [f"address add {address}/24 dev eth0", *routes])
        return address

    def unplug(self, host: str) -> None:
        """Remove the address of ``host``, and its table of neighbours."""
        self.namespaces.configure(_CLOSET, [f"link set {self._port(host)} nomaster"])
        self.namespaces.configure(host, ["address flush dev eth0", "neigh flush dev eth0"])

    def rebind(self, router: str) -> None:
        """Let ``router`` forget all connections, and give each another port from now on, as after its restart."""
        self._rebindings[router] += 1
        self._translate(router)
        self.namespaces.run(router, [sys.executable, "-c", _FORGET, _NETLINK_FORGET.hex()])

    def _port(self, host: str) -> str:
        return f"h{self._hosts.index(host)}"

    def _build(self) -> None:
        spaces, closet = self.namespaces, []
        spaces.add(_CLOSET, *self._routers, *self._hosts)
        for segment in (PUBLIC, *self._routers):
            closet += [f"link add {segment} type bridge", f"link set {segment} up"]
        for number, router in enumerate(self._routers):
            spaces.join(_CLOSET, f"w{number}", router, "wan")
            spaces.join(_CLOSET, f"l{number}", router, "lan")
            closet += [f"link set w{number} master {PUBLIC} up", f"link set l{number} master {router} up"]
            addresses = {"wan": self.public_address(router), "lan": f"{_NETWORKS[1]}.{_GATEWAY}"}
            for device, address in addresses.items():
                spaces.configure(router, [f"address add {address}/24 dev {device}", f"link set {device} up"])
            spaces.forward(router)
            self._translate(router)
        for host in self._hosts:
            spaces.join(_CLOSET, self._port(host), host, "eth0")
            spaces.configure(host, ["link set eth0 up"])
            closet.append(f"link set {self._port(host)} up")
        spaces.configure(_CLOSET, closet)

    def _translate(self, router: str) -> None:
        ports = "--random-fully" if self._routers[router] is Nat.SYMMETRIC else ""
        if count := self._rebindings[router]:
            first = _REBOUND_PORTS[count % len(_REBOUND_PORTS)]
            ports += f" --to-ports {first}-{first + _REBOUND_PORTS.step - 1}"
        self.namespaces.run(router, ["iptables-restore"], _RULES.replace("PORTS", ports))

    def _check(self) -> None:
        """Send a datagram from the last host to the first from behind the first router, which must translate it."""
        first, *_, last = self._hosts
        router = next(iter(self._routers))
        self.plug(last, router, 0)
        heard = self.namespaces.source_seen(first, self.plug(first, PUBLIC, 0), by=last)
        if heard != self.public_address(router):
            raise CannotRunError("the router does not translate addresses")
