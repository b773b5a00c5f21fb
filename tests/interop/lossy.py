"""A private loopback network that loses datagrams, for this thread and the threads and processes that it starts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Final

from wanderbus.testbed.namespaces import Namespaces, entered, missing

MISSING: Final = f"no loss: {missing('iptables')}"
POSSIBLE: Final = missing("iptables") is None


@contextlib.contextmanager
def losing(probability: float) -> Iterator[Callable[[], int]]:
    """Run the block in a private network, in which each datagram may be lost.

    Threads and processes that the block starts are in that network too. Yields a counter of the datagrams lost so far.
    """
    with Namespaces("wblossy") as made:
        made.add("host")
        chance = ("-m", "statistic", "--mode", "random", "--probability", str(probability))
        made.run("host", ["iptables", "-A", "INPUT", "-p", "udp", *chance, "-j", "DROP"])

        def lost() -> int:
            found = re.search(
                r"(?m)^ *(\d+) +\d+ +DROP", made.run("host", ["iptables", "-n", "-v", "-x", "-L", "INPUT"])
            )
            assert found is not None
            return int(found[1])

        with entered(made.name("host")):
            yield lost
