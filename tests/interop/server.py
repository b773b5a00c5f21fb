"""Our registrar and proxy for peers that only support MD5 and send more than a guest may; also a program of its own.

SIPp up to 3.6 looks at the first challenge only and gives up unless that is MD5 (RFC 8760 2.4 has them in order of
preference), and a load of thousands of requests per second from one address is what flood limits prevent. ``python -m
tests.interop.server PORT USERS``, USERS being lines of ``name:password``, runs until it is terminated; with a third
argument it writes a profile there.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Certificates
from tests.interop.kamailio import DOMAIN
from tests.sip.phone_world import UNLIMITED
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.net.sip_listening import listen_for_sip
from wanderbus.runtime.net.tls import client_tls, server_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.authentication.digest import ALGORITHMS
from wanderbus.sip.proxy.routing_script import RoutingScript
from wanderbus.sip.proxy.sip_server import SOCKET, SIPServer


class Served(NamedTuple):
    """Our server on loopback: its port for UDP and TCP, the one for TLS, and the machine."""

    port: int
    tls_port: int | None
    machine: SIPServer

    def contacts(self, aor: str) -> tuple[str, ...]:
        """Return where the user is registered, alive or not."""
        return tuple(binding.contact for binding in self.machine.location.bindings(aor, 0.0))


@contextlib.asynccontextmanager
async def serving_all(
    users: Mapping[str, str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    algorithms: Sequence[str] = ALGORITHMS,
    flood: FloodLimits = UNLIMITED,
    certificates: Certificates | None = None,
    routing: RoutingScript | None = None,
) -> AsyncIterator[Served]:
    """Serve ``users`` (names and passwords) over UDP and TCP, and over TLS where there are ``certificates``."""
    random = SystemRandom()
    driver = Driver(Unmade(), lambda report: None)
    made = certificates
    try:
        address, streams = listen_for_sip(
            driver,
            SOCKET,
            (host, port),
            tcp=True,
            server_tls=made and server_tls(made.certificate, made.key),
            client_tls=made and client_tls(made.authority),
        )
        machine = SIPServer(
            DOMAIN,
            address,
            users.get,
            random,
            random.token(32),
            streams=streams,
            routing=routing,
            flood=flood,
            algorithms=algorithms,
        )
        driver.machine = machine
        yield Served(address[1], streams["TLS"][1] if made else None, machine)
    finally:
        driver.close()


@contextlib.asynccontextmanager
async def serving(
    users: Mapping[str, str], *, port: int = 0, routing: RoutingScript | None = None
) -> AsyncIterator[int]:
    """Serve ``users`` over UDP and TCP with the digest that SIPp supports; yield the port."""
    async with serving_all(users, port=port, algorithms=("MD5",), routing=routing) as served:
        yield served.port


async def _serve(port: int, users: Mapping[str, str]) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with serving(users, port=port):
        await ended.wait()


def main(arguments: Sequence[str]) -> None:
    """Serve until terminated."""
    import uvloop

    lines = Path(arguments[1]).read_text(encoding="utf-8").splitlines()
    users = dict(line.split(":", 1) for line in lines)
    profile = cProfile.Profile() if len(arguments) > 2 else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if profile is not None:
            profile.enable()
        runner.run(_serve(int(arguments[0]), users))
    if profile is not None:
        profile.disable()
        profile.dump_stats(arguments[2])


if __name__ == "__main__":
    main(sys.argv[1:])
