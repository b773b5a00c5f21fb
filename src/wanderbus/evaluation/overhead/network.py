"""The hosts of the experiment, and the links between them, as network namespaces.

::

    device ──Wi-Fi── nat ── core ── broker
                              └──remote── relay

The device has two addresses. Datagrams from 10.79.1.2 pass the router ``nat`` unchanged; those from 192.168.79.2 leave
it masqueraded, so nobody on the other side can reach the device first. A device behind NAT and another one therefore
use the same path. The links "Wi-Fi" and "remote" have a delay if one is configured, by
:mod:`wanderbus.testbed.delayed_link`; with a round trip of 0 they have none.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import WanderbusError
from wanderbus.evaluation.overhead.experiment import Configuration, OverheadExperiment
from wanderbus.testbed.async_processes import Crew
from wanderbus.testbed.delayed_link import TUN, delayed_link
from wanderbus.testbed.namespaces import Namespaces, inside
from wanderbus.testbed.namespaces import missing as missing_for_namespaces

DEVICE, BROKER, RELAY = "device", "broker", "relay"
ADDRESSES: Final = {DEVICE: "10.79.1.2", BROKER: "10.79.3.1", RELAY: "10.79.4.1"}
PRIVATE: Final = "192.168.79.2"
"""The device's other address."""

SIP_PORTS: Final = {each: 5060 + each for each in Configuration}
RELAY_PORTS: Final = {Configuration.RELAY_BESIDE: "20000-24999", Configuration.RELAY_APART: "25000-29999"}
"""Ports of each configuration's relay, below the range of ephemeral ports."""

ECHO_S_MAX: Final = 2.0

_NAT, _CORE = "nat", "core"
_LINES: Final = {
    DEVICE: (
        "address add 10.79.1.2/24 dev air0",
        f"address add {PRIVATE}/24 dev air0",
        "link set air0 up",
        "route add default via 10.79.1.1 dev air0",
    ),
    _NAT: (
        "address add 10.79.1.1/24 dev air0",
        "address add 192.168.79.1/24 dev air0",
        "link set air0 up",
        "address add 10.79.2.1/24 dev eth0",
        "link set eth0 up",
        "route add default via 10.79.2.254 dev eth0",
    ),
    _CORE: (
        "address add 10.79.2.254/24 dev nat0",
        "link set nat0 up",
        "address add 10.79.3.254/24 dev broker0",
        "link set broker0 up",
        "address add 10.79.4.254/24 dev relay0",
        "link set relay0 up",
        "route add 10.79.1.0/24 via 10.79.2.1 dev nat0",
    ),
    BROKER: (
        "address add 10.79.3.1/24 dev eth0",
        "link set eth0 up",
        "route add default via 10.79.3.254 dev eth0",
    ),
    RELAY: (
        "address add 10.79.4.1/24 dev eth0",
        "link set eth0 up",
        "route add default via 10.79.4.254 dev eth0",
    ),
}
# Datagrams that leave the private address are counted by destination: a relay, or elsewhere. (The kernel itself reports
# by ICMP that a program has ended.)
_RULES: Final = f"""
table ip wanderbus {{
    counter relay-3 {{ }}
    counter relay-4 {{ }}
    counter around {{ }}
    chain out {{
        type nat hook postrouting priority srcnat
        ip saddr {PRIVATE} masquerade
    }}
    chain through {{
        type filter hook forward priority filter
        ip saddr != {PRIVATE} accept
        ip daddr {ADDRESSES[BROKER]} udp dport {min(SIP_PORTS.values())}-{max(SIP_PORTS.values())} accept
        ip daddr {ADDRESSES[BROKER]} udp dport {RELAY_PORTS[Configuration.RELAY_BESIDE]} counter name relay-3 accept
        ip daddr {ADDRESSES[RELAY]} udp dport {RELAY_PORTS[Configuration.RELAY_APART]} counter name relay-4 accept
        meta l4proto udp counter name around
    }}
}}
"""


class Relayed(msgspec.Struct, frozen=True):
    """Datagrams that the device has sent from behind NAT so far, without signalling."""

    beside: int
    """To the relay beside the broker."""
    apart: int
    """To the relay on the third host."""
    around: int
    """Elsewhere."""


class RunNetwork:
    """The hosts of a run, once they exist."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def on(self, host: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on ``host``."""
        return self._namespaces.command(host, argv)

    def relayed(self) -> Relayed:
        """Return the counters of the router."""
        listing = msgspec.json.decode(self._namespaces.run(_NAT, ["nft", "--json", "list", "counters"]))
        each = {row["counter"]["name"]: row["counter"]["packets"] for row in listing["nftables"] if "counter" in row}
        return Relayed(each["relay-3"], each["relay-4"], each["around"])

    def round_trips_s(self, one: str, other: str, times: int) -> list[float]:
        """Return the durations of round trips of a datagram between two hosts, without processing time."""
        found = []
        with self._socket(one) as here, self._socket(other) as there:
            there.bind((ADDRESSES[other], 0))
            for _ in range(times):
                began_s = time.monotonic()
                try:
                    here.sendto(b"there", there.getsockname())
                    _, source = there.recvfrom(16)
                    there.sendto(b"back", source)
                    here.recvfrom(16)
                except OSError as error:
                    raise WanderbusError(f"no packet passes from {one} to {other} and back: {error}") from None
                found.append(time.monotonic() - began_s)
        return found

    def _socket(self, host: str) -> socket.socket:
        opened = inside(self._namespaces.name(host), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        opened.settimeout(ECHO_S_MAX)
        return opened


def missing(experiment: OverheadExperiment) -> str | None:
    """Return why the network cannot be made here, None if no obstacle is known."""
    if reason := missing_for_namespaces("nft"):
        return reason
    if (experiment.wifi_rtt_s or experiment.relay_rtt_s) and not TUN.exists():
        return f"there is no {TUN}, which links take that have a round trip of their own"
    return None


@contextlib.asynccontextmanager
async def network(experiment: OverheadExperiment, directory: Path) -> AsyncIterator[RunNetwork]:
    """Provide the network for the block; raise :class:`ConfigurationError` if that fails."""
    async with contextlib.AsyncExitStack() as stack:
        namespaces = stack.enter_context(Namespaces("wbeval"))
        crew = await stack.enter_async_context(Crew(directory))
        namespaces.add(*_LINES)
        namespaces.join(_NAT, "eth0", _CORE, "nat0")
        namespaces.join(BROKER, "eth0", _CORE, "broker0")
        links = (
            ("wifi", experiment.wifi_rtt_s, (DEVICE, "air0", _NAT, "air0")),
            ("remote", experiment.relay_rtt_s, (RELAY, "eth0", _CORE, "relay0")),
        )
        for name, rtt_s, ends in links:
            if rtt_s == 0:
                namespaces.join(*ends)
                continue
            one, device, other, other_device = ends
            argv = delayed_link(namespaces.name(one), device, namespaces.name(other), other_device, rtt_s / 2)
            await (await crew.start(name, argv)).line()
        for host, lines in _LINES.items():
            namespaces.configure(host, lines)
        for host in (_NAT, _CORE):
            namespaces.forward(host)
        namespaces.run(_NAT, ["nft", "--file", "-"], _RULES)
        yield RunNetwork(namespaces)
