"""Our registrar and proxy for peers that know MD5 alone and send more than a guest would; also a process of its own.

SIPp up to 3.6 looks at the first challenge only and gives up unless that is MD5 (RFC 8760 2.4 has them in order of
preference), and a load of thousands of requests per second from one address is what flood limits are there against.
``python -m tests.interop.server PORT USERS``, USERS being lines of ``name:password``, runs until it is terminated;
with a third argument it writes a profile there.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

from tests.interop.kamailio import DOMAIN
from wanderbus.api.sip_mobility.ports import take_ports
from wanderbus.machine import Input, Output
from wanderbus.runtime.ambient import SystemRandom
from wanderbus.runtime.driver import Driver
from wanderbus.sip.flood import FloodLimits
from wanderbus.sip.server import SOCKET, SIPServer

UNLIMITED = FloodLimits(requests_per_s=1e9, burst_requests=1e9)


@contextlib.asynccontextmanager
async def serving(
    users: Mapping[str, str], *, port: int = 0, algorithms: Sequence[str] = ("MD5",), flood: FloodLimits = UNLIMITED
) -> AsyncIterator[int]:
    """Serve ``users`` (names and passwords) over UDP and TCP; yield the port."""
    random = SystemRandom()
    driver = Driver(_Silent(), lambda report: None)
    try:
        address = take_ports(driver, SOCKET, ("127.0.0.1", port), "TCP")
        driver.machine = SIPServer(
            DOMAIN,
            address,
            users.get,
            random,
            random.token(32),
            streams={"TCP": address},
            flood=flood,
            algorithms=algorithms,
        )
        yield address[1]
    finally:
        driver.close()


class _Silent:
    """Stands in the driver until its socket is bound."""

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        return []


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
