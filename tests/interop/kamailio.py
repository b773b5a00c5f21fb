"""Kamailio as registrar and proxy, with the configuration that is shipped: another's server to hold our own beside."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from harness.kamailio import MISSING as MISSING
from harness.kamailio import PROGRAM as PROGRAM
from harness.kamailio import Kamailio as Site
from harness.ports import free_port
from harness.udp_probe import answers_there, sip_question
from tests.certificates import Certificates
from wanderbus.machine import Address
from wanderbus.testbed.launch import pinned
from wanderbus.testbed.processes import Process

DOMAIN = "example.org"
TLS_MODULE = "the TLS module of Kamailio is not installed: apt-get install kamailio-tls-modules"
HAS_TLS = any(Path("/usr/lib").glob("*/kamailio/modules/tls.so"))


class Kamailio(NamedTuple):
    """Kamailio's ports for UDP and TCP and for TLS, and its main process."""

    port: int
    tls_port: int
    pid: int
    address: str = "127.0.0.1"

    @property
    def place(self) -> str:
        """The same as ``host:port``."""
        return f"{self.address}:{self.port}"

    def port_for(self, transport: str) -> int:
        """The port for a client that uses ``transport``."""
        return self.tls_port if transport == "TLS" else self.port


@contextlib.contextmanager
def kamailio(
    users: Mapping[str, str],
    *,
    domain: str = DOMAIN,
    address: str = "127.0.0.1",
    port: int | None = None,
    tls_port: int | None = None,
    algorithm: str = "MD5",
    ha1: bool = False,
    challenge_calls: bool = True,
    certificates: Certificates | None = None,
    relays: Sequence[Address] = (),
    relay_for_all: bool = True,
    relay_flags: str = "",
    children: int = 2,
    processor: int | None = None,
    within: Sequence[str] = (),
    peer: tuple[str, str, Path] | None = None,
) -> Iterator[Kamailio]:
    """Run Kamailio for ``users`` (names and passwords), on free ports unless they are given.

    ``within`` is the start of a command line that enters a namespace, such as ``ip netns exec NAME``.
    """
    port, tls_port = port or free_port(), tls_port or free_port()
    with tempfile.TemporaryDirectory(prefix="wanderbus-kamailio-") as directory:
        site = Site(
            domain=domain,
            users=users,
            address=address,
            port=port,
            tls_port=tls_port,
            certificate=None if certificates is None else (certificates.certificate, certificates.key),
            algorithm=algorithm,
            ha1=ha1,
            call_digest=challenge_calls,
            relays=relays,
            relay_for_all=relay_for_all,
            relay_flags=relay_flags,
            peer=peer,
            workers=children,
        )
        command = [*within, *site.install(Path(directory))]
        question = sip_question(domain)
        with Process("kamailio", pinned(command, processor), Path(directory) / "said") as process:
            process.wait_until(lambda: answers_there(within, (address, port), question))
            yield Kamailio(port, tls_port, process.pid, address)
