"""Server under attack: ``wanderbus up`` with its defaults on the host ``server``, observed from outside."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from harness.certificate import make_certificate
from harness.process_figures import open_files, processor_s, resident_bytes
from hostile.attack import DOMAIN, OPERATOR, PAGES_PORT, PASSWORD
from hostile.network import SERVER, Network
from hostile.priority import come_first, waited_s
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

PORTS: Final = {"port": 5060, "tls_port": 5061, "broker_port": 5070, "data_port": 5080, "stream_port": 5090}
"""Fixed ports, so that an attacker need not find them out; any user could."""

ECI_PORT: Final = 5100
"""Address of the original ECI, if the server serves it."""

DESCRIPTORS: Final = 1_024
"""Soft limit of open files that a login shell or a service gets on Debian."""

STOP_S_MAX: Final = 30.0


class Liar(NamedTuple):
    """A program that is a server and lies to others, from the attacker's host, as long as there are orders."""

    module: str
    orders: Path
    """Directory of the orders."""


class Server:
    """One server with a directory of its own; raises RuntimeError when it does not start.

    It may be a ``member`` of an event domain: the file, and its name there; and a gateway of a ``federation``,
    likewise. A ``liar`` lies to the other ones.
    """

    def __init__(
        self,
        network: Network,
        directory: Path,
        users: Iterable[str],
        *,
        traced: bool = False,
        short_segments: bool = False,
        eci: bool = False,
        pages: bool = False,
        host: str = SERVER,
        domain: str = DOMAIN,
        member: tuple[Path, str] | None = None,
        federation: tuple[Path, str] | None = None,
        liar: Liar | None = None,
    ) -> None:
        self.data = directory / "data"
        self.trace = str(directory / "sip.trace") if traced else ""
        """File of its SIP trace, empty without one."""

        self.ended = 0
        """Number of times that it ended without being stopped."""
        self._network = network
        self._words = ["hostile.short_segments" if short_segments else "wanderbus"]
        if liar is not None:
            self._words = [liar.module, str(liar.orders)]
        self._host = "server" if liar is None else "attacker"
        self._prepare = come_first if liar is None else None
        self._errors = directory / "server.stderr"
        self._process: Process | None = None
        file = directory / "users"
        file.touch(0o600)
        file.write_text("".join(f"{user}:{PASSWORD}\n" for user in users), encoding="utf-8")
        certificate, key = make_certificate(directory)
        given = {"host": host, "domain": domain, "users": str(file), "data_dir": str(self.data)}
        given |= {"tls_certificate": str(certificate), "tls_key": str(key)}
        given |= {"http": f"{host}:{PAGES_PORT}"} if pages else {}
        given |= {"sip_trace": self.trace} if traced else {}
        given |= {"event_domain": str(member[0]), "event_server": member[1]} if member else {}
        if federation is not None:
            given |= {"federation": str(federation[0]), "federation_gateway": federation[1]}
        lines = [f'{name} = "{value}"' for name, value in given.items()]
        lines += [f"{name} = {value}" for name, value in PORTS.items()]
        lines += [f"eci_port = {ECI_PORT}", f'eci_host = "{host}"'] if eci else []
        lines += ["[broker.roles]", f'{OPERATOR} = "administrator"']
        self._settings = directory / "broker.toml"
        self._settings.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self) -> float:
        """Start it, wait until it is ready, and return the duration."""
        began_s = time.monotonic()
        argv = python(*self._words, "up", "--config", str(self._settings))
        limited = ["sh", "-c", f'ulimit -Sn {DESCRIPTORS}; exec "$@"', "sh", *argv]
        argv = self._network.command(self._host, limited)
        self._process = Process("the server", argv, self._errors, read=True, prepare=self._prepare, session=True)
        try:
            self._process.line()
        except CannotRunError as error:
            raise RuntimeError(f"the server did not start: {error}") from None
        return time.monotonic() - began_s

    def stop(self) -> None:
        """Stop it in order; kill it if that fails, and count it if it had ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return
        self.ended += not process.running
        process.end(STOP_S_MAX)

    def has_ended(self) -> bool:
        """Return whether it ended without being stopped."""
        return self._process is not None and not self._process.running

    def rss_mib(self) -> float:
        """Return its resident memory; 0 once it has ended."""
        return resident_bytes(self._process.pid) / 2**20 if self._process is not None else 0.0

    def open_files(self) -> int:
        """Return its number of descriptors; 0 once it has ended."""
        return open_files(self._process.pid) if self._process is not None else 0

    def cpu_s(self) -> float:
        """Return the processor time that it has used; 0 once it has ended."""
        return processor_s([self._process.pid]) if self._process is not None else 0.0

    def waited_s(self) -> float:
        """Return how long it was ready without a processor."""
        return waited_s(self._process.pid) if self._process is not None else 0.0
