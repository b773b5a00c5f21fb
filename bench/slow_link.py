"""Delayed link between two network namespaces.

The kernel passes packets to this process (TUN devices, Documentation/networking/tuntap.rst), which forwards each after
the delay. It suits loads of some thousand packets a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import select
import signal
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Final

from bench.workers import enter_namespace

_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000
_PACKET_BYTES_MAX: Final = 65_536
_START_S_MAX: Final = 20.0


@contextlib.contextmanager
def slow_link(namespaces: Sequence[str], device: str, delay_s: float) -> Iterator[None]:
    """Join two namespaces for the block by devices of this name; raises ``OSError`` if that fails."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_carry, args=(there, tuple(namespaces), device, delay_s), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(_START_S_MAX):
            raise OSError("the slow link does not start")
        try:
            trouble = here.recv()
        except EOFError:
            trouble = "its process ended"
        if trouble:
            raise OSError(f"there is no slow link: {trouble}")
        yield
    finally:
        process.terminate()
        process.join()


def _carry(ready: Connection, namespaces: Sequence[str], device: str, delay_s: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        near, far = (_open_device(name, device) for name in namespaces)
    except OSError as error:
        ready.send(str(error))
        return
    ready.send("")
    across = {near: far, far: near}
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        timeout_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([near, far], [], [], timeout_s)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    waiting.append((time.monotonic() + delay_s, across[source], os.read(source, _PACKET_BYTES_MAX)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, packet = waiting.popleft()
            with contextlib.suppress(OSError):  # the device is down, or full: the packet is lost
                os.write(target, packet)


def _open_device(namespace: str, device: str) -> int:
    enter_namespace(namespace)
    opened = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(opened, _TUNSETIFF, struct.pack("16sH", device.encode(), _TUN_WITHOUT_HEADER))
    return opened
