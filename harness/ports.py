"""Free ports of this machine."""

from __future__ import annotations

import contextlib
import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of ``host`` that is free for UDP and TCP at present."""
    for _ in range(32):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
            stream.bind((host, 0))
            port: int = stream.getsockname()[1]
            with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.bind((host, port))
                return port
    raise OSError("no port is free for both UDP and TCP")
