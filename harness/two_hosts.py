"""Two hosts for a benchmark or a test: network namespaces joined by a cable; takes root.

::

    near: eth0 10.77.0.2/24 ──link── eth0 10.77.0.1/24 :far

``near`` is the side that moves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from wanderbus.testbed.delayed_link import PACKET_BYTES_MAX, delayed_link
from wanderbus.testbed.namespaces import Namespaces
from wanderbus.testbed.processes import Process

DEVICE: Final = "eth0"
FAR_ADDRESS: Final = "10.77.0.1"
NEAR_ADDRESSES: Final = ("10.77.0.2", "10.77.0.3")
PREFIX_BITS: Final = 24
_NEAR, _FAR = "near", "far"


class Hosts(NamedTuple):
    """The two namespaces, and their names."""

    near: str
    far: str
    namespaces: Namespaces

    def lose(self, share: float) -> None:
        """Make each host lose this share of the packets that reach it, replacing its earlier share."""
        for host in (_NEAR, _FAR):
            self.namespaces.lose(host, DEVICE, share)


@contextlib.contextmanager
def hosts(*, loss: float = 0.0, delay_s: float = 0.0, packet_bytes_max: int = PACKET_BYTES_MAX) -> Iterator[Hosts]:
    """Make two hosts for the block, ``delay_s`` apart each way; raises :class:`wanderbus.testbed.CannotRunError`.

    The delayed link drops packets of more than ``packet_bytes_max`` silently.
    """
    with Namespaces("wbench") as made, contextlib.ExitStack() as stack:
        made.add(_NEAR, _FAR)
        near, far = made.name(_NEAR), made.name(_FAR)
        if delay_s:
            argv = delayed_link(near, DEVICE, far, DEVICE, delay_s, packet_bytes_max)
            stack.enter_context(Process("link", argv, Path(os.devnull), read=True)).line()
        else:
            made.join(_NEAR, DEVICE, _FAR, DEVICE)
        for host, address in ((_NEAR, NEAR_ADDRESSES[0]), (_FAR, FAR_ADDRESS)):
            made.configure(host, [f"link set {DEVICE} up", f"address add {address}/{PREFIX_BITS} dev {DEVICE}"])
        pair = Hosts(near, far, made)
        if loss:
            pair.lose(loss)
        yield pair
