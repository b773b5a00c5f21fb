"""SIPp against our registrar and proxy: REGISTER, calls with re-INVITE, CANCEL, loss (SPEC C-20, D-02, D-07)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.interop import sipp
from tests.interop.kamailio import DOMAIN
from tests.interop.processes import free_port
from tests.interop.server import serving
from tests.interop.sipp import ScenarioFailed, play, playing
from wanderbus.api.sip_mobility import SIPServers

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sipp.PROGRAM is None, reason=sipp.MISSING),
]

USERS = {"alice": "secret", "bob": "sesame"}
BOB = {"bob": USERS["bob"]}
TRANSPORTS = ("UDP", "TCP")


def with_server(scenario: Callable[[int], None]) -> None:
    """Run ``scenario`` in a thread, beside our server, whose port it is given."""

    async def run() -> None:
        async with serving(USERS) as port:
            await asyncio.to_thread(scenario, port)

    asyncio.run(run())


def call(
    server: int, caller: str, callee: str, transport: str = "UDP", calls: int = 1, options: Sequence[str] = ()
) -> None:
    """Register Bob with the contact of one SIPp, and let another SIPp call him through the server."""
    with playing(callee, server, transport=transport, calls=calls) as bob:
        play("register", server, transport=transport, users=BOB, contact_port=bob.port)
        play(caller, server, transport=transport, calls=calls, options=options)
        bob.wait()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_register(transport: str) -> None:
    """RFC 3261 10, 22; RFC 7616: challenged, authenticated, and the binding is listed."""
    with_server(lambda server: play("register", server, transport=transport, users=USERS, calls=10))


def test_a_lean_register_is_answered_within_its_size() -> None:
    """SPEC C-20: the challenge that fits into few bytes is the MD5 one, which SIPp understands."""

    async def run() -> None:
        async with SIPServers(DOMAIN, USERS, port=0) as servers:
            await asyncio.to_thread(play, "register_lean", servers.address[1], users=USERS, calls=2)

    asyncio.run(run())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_register_with_a_wrong_password(transport: str) -> None:
    """RFC 3261 22: refused with 403, and not accepted: the scenario of the right password fails."""
    wrong = {"alice": "guess"}

    def refused(server: int) -> None:
        play("register_refused", server, transport=transport, users=wrong)
        with pytest.raises(ScenarioFailed, match="403"):
            play("register", server, transport=transport, users=wrong)

    with_server(refused)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_call_with_reinvite_and_bye(transport: str) -> None:
    """RFC 3261 13 to 16: every request of the dialog goes by way of the proxy."""
    with_server(lambda server: call(server, "call", "answer", transport, calls=5))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancel(transport: str) -> None:
    """RFC 3261 9, 16.10: CANCEL goes on to where the INVITE went, and 487 comes back."""
    with_server(lambda server: call(server, "cancel", "cancelled", transport))


def test_registers_under_loss() -> None:
    """RFC 3261 17: a fifth of what SIPp sends and receives is lost; retransmissions make up for it."""
    loss = ("-lost", "20", "-r", "50")
    with_server(lambda server: play("register", server, users=USERS, calls=20, options=loss))


def test_calls_under_loss() -> None:
    """RFC 3261 13.3.1.4, 16, 17: a quarter of what the caller sends and of the final answers is lost."""
    with_server(lambda server: call(server, "lossy_call", "short_answer", calls=20, options=("-r", "50")))


def test_nobody_is_called_who_is_not_there() -> None:
    """RFC 3261 16.5: 480, which the scenario of a call does not take for an answer."""

    def unanswered(server: int) -> None:
        with pytest.raises(ScenarioFailed, match="480"):
            play("short_call", server, port=free_port())

    with_server(unanswered)
