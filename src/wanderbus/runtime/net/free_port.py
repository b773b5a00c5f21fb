"""Choice of a port that is free for UDP and TCP."""

from __future__ import annotations

import socket
from typing import Final

from wanderbus.errors import ConfigurationError

_TRIES: Final = 100


def free_port(host: str) -> int:
    """Return a port of ``host`` that is free now for UDP and TCP; :class:`ConfigurationError` if there is none."""
    for _ in range(_TRIES):
        with socket.socket(type=socket.SOCK_STREAM) as stream, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
            try:
                stream.bind((host, 0))
                port: int = stream.getsockname()[1]
                datagrams.bind((host, port))
            except OSError:
                continue
            return port
    raise ConfigurationError(f"{host} has no free port, or is no address of this machine; give other addresses")
