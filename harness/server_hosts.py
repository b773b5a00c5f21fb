"""Hosts for the servers of a domain, and one for their clients: network namespaces; takes root.

::

    clients 10.76.N.1 ── cable ── 10.76.N.2 server N 10.75.0.N ── a delayed link to each other server
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

from harness.domain_file import Place
from wanderbus.testbed.delayed_link import TUN, delayed_link
from wanderbus.testbed.namespaces import Namespaces
from wanderbus.testbed.namespaces import missing as missing_for_namespaces
from wanderbus.testbed.processes import Process

_CLIENTS: Final = "clients"


class ServerHosts(NamedTuple):
    """Names of the namespaces."""

    clients: str
    servers: tuple[str, ...]

    def place(self, number: int, roles: Sequence[str]) -> Place:
        """Return the place of the server of this number, from 1 on: clients and other servers have one way each."""
        return Place(f"10.76.{number}.2", 5060, roles, link_host=_far_address(number))


def missing() -> str | None:
    """Return why there can be no such hosts here, None if no obstacle is known."""
    if reason := missing_for_namespaces():
        return reason
    return None if TUN.exists() else f"there is no {TUN}, which delayed links take"


@contextlib.contextmanager
def server_hosts(size: int, delay_s: float) -> Iterator[ServerHosts]:
    """Make ``size`` hosts for the block, ``delay_s`` apart each way; raises :class:`wanderbus.testbed.CannotRunError`.

    Their clients are near to all of them.
    """
    numbers = range(1, size + 1)
    with Namespaces("wbhosts") as made, contextlib.ExitStack() as stack:
        made.add(_CLIENTS, *map(_name, numbers))
        for number in numbers:
            made.join(_CLIENTS, f"near{number}", _name(number), "near")
            for host, device, end in ((_CLIENTS, f"near{number}", 1), (_name(number), "near", 2)):
                made.configure(host, [f"address add 10.76.{number}.{end}/24 dev {device}", f"link set {device} up"])
            # A client keeps its first address when it goes to another server.
            more = [f"address add {_far_address(number)}/32 dev lo", f"route add default via 10.76.{number}.1 dev near"]
            made.configure(_name(number), more)
        for one, other in combinations(numbers, 2):
            ends = made.name(_name(one)), f"far{other}", made.name(_name(other)), f"far{one}"
            stack.enter_context(Process("link", delayed_link(*ends, delay_s), Path(os.devnull), read=True)).line()
            for here, there in ((one, other), (other, one)):
                route = f"route add {_far_address(there)} dev far{there} src {_far_address(here)}"
                made.configure(_name(here), [f"link set far{there} up", route])
        yield ServerHosts(made.name(_CLIENTS), tuple(made.name(_name(number)) for number in numbers))


def _name(number: int) -> str:
    return f"s{number}"


def _far_address(number: int) -> str:
    return f"10.75.0.{number}"
