"""The network of a run: four hosts in network namespaces on one bridge; takes root.

::

    server 10.77.0.1 ──bridge──┬── good      10.77.0.11 to .15 and .21 (five users), 10.77.1.0/24 (newcomers)
                               ├── attacker  10.77.0.9, and 10.78.0.0/22 by way of it
                               └── victim    10.77.0.3, where nobody ever asked for anything

Server, good agents and attacker have addresses of IPv6 too (:func:`as_ipv6`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from wanderbus.testbed.namespaces import Namespaces

SERVER: Final = "10.77.0.1"
SECOND: Final = "10.77.0.2"
"""Address of a second server on the same host."""

ATTACKER: Final = "10.77.0.9"
VICTIM: Final = "10.77.0.3"
GOOD: Final = tuple(f"10.77.0.{number}" for number in range(11, 16))
MOVED: Final = "10.77.0.21"
"""Address that the good agent who moves takes in turn with its first one."""

NEWCOMERS: Final = tuple(f"10.77.1.{number}" for number in range(1, 65))
SOURCES: Final = tuple(f"10.78.{high}.{low}" for high in range(4) for low in range(1, 251))
"""A thousand addresses that the attacker can send from."""

_ETC: Final = Path("/etc/netns")
_PREFIX_BITS: Final = 16
_IPV6_PREFIX_BITS: Final = 32
_HOSTS: Final = ("good", "attacker", "victim")


def as_ipv6(address: str) -> str:
    """Return the IPv6 address of a host with this IPv4 address, in a /64 of its own."""
    _, second, third, last = map(int, address.split("."))
    return f"fd{second}:0:0:{third << 8 | last:x}::1"


class Network:
    """Network of a run; see the module."""

    def __init__(self) -> None:
        self._namespaces = Namespaces("wbhostile")
        self._resolver = _ETC / self._namespaces.name("server")

    def command(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on ``host``, under the same process id."""
        return self._namespaces.command(host, argv)

    def name(self, host: str) -> str:
        """Return the name of the namespace of ``host``."""
        return self._namespaces.name(host)

    def received_bytes(self, host: str) -> int:
        """Return the bytes of IPv4 packets that have arrived at ``host``."""
        return octets_in(self._namespaces.run(host, ["cat", "/proc/net/netstat"]))

    def _build(self) -> None:
        self._namespaces.add("server", *_HOSTS)
        bridge = ["link add lan type bridge"]
        for number, host in enumerate(_HOSTS):
            self._namespaces.join("server", f"port{number}", host, "eth0")
            bridge += [f"link set port{number} master lan", f"link set port{number} up"]
        bridge += ["link set lan up", f"address add {SERVER}/{_PREFIX_BITS} dev lan"]
        bridge += [f"address add {SECOND}/{_PREFIX_BITS} dev lan"]
        bridge += [f"address add {as_ipv6(SERVER)}/{_IPV6_PREFIX_BITS} dev lan nodad"]
        bridge += [f"route add 10.78.0.0/22 via {ATTACKER}", f"route add fd78::/32 via {as_ipv6(ATTACKER)}"]
        self._namespaces.configure("server", bridge)
        self._attach("good", (*GOOD, MOVED, *NEWCOMERS))
        self._attach("attacker", (ATTACKER,))
        self._name_server()
        # Every address of the block is local there, without an address and a neighbour entry of its own for each.
        blocks = ("10.78.0.0/22", "fd78::/32")
        self._namespaces.configure("attacker", [f"route add local {block} dev lo" for block in blocks])
        self._attach("victim", (VICTIM,))

    def _name_server(self) -> None:
        """Make the server query the attacker for names: ``ip netns exec`` mounts this file over the system's."""
        self._resolver.mkdir(parents=True, exist_ok=True)
        text = f"nameserver {ATTACKER}\noptions timeout:5 attempts:2\n"
        self._resolver.joinpath("resolv.conf").write_text(text, encoding="ascii")

    def _remove(self) -> None:
        self._namespaces.remove()
        shutil.rmtree(self._resolver, ignore_errors=True)

    def _attach(self, host: str, addresses: Sequence[str]) -> None:
        lines = [f"address add {address}/{_PREFIX_BITS} dev eth0" for address in addresses]
        lines += [f"address add {as_ipv6(address)}/{_IPV6_PREFIX_BITS} dev eth0 nodad" for address in addresses]
        self._namespaces.configure(host, ["link set eth0 up", *lines])


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """Build the network for the block; raises :class:`wanderbus.testbed.CannotRunError`."""
    made = Network()
    try:
        with made._namespaces.building():
            made._build()
        yield made
    finally:
        made._remove()


def octets_in(netstat: str) -> int:
    """Return ``InOctets`` of the text of ``/proc/net/netstat``: bytes of IPv4 packets received, headers included."""
    lines = [line.split() for line in netstat.splitlines() if line.startswith("IpExt:")]
    names, values = lines
    return int(dict(zip(names, values, strict=True))["InOctets"])
