"""SIPp against our registrar and proxy: REGISTER, calls with re-INVITE, CANCEL, loss (SPEC C-20, D-02, D-07).

SIPp of Debian is built without TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from harness.ports import free_port
from tests.interop import lossy, sipp
from tests.interop.kamailio import DOMAIN
from tests.interop.lossy import losing
from tests.interop.server import serving
from tests.interop.sipp import ScenarioFailed, play, playing
from wanderbus.api.sip_mobility import SIPServers

pytestmark = [
    pytest.mark.integration,
    pytest.mark.interop(peer="SIPp"),
    pytest.mark.skipif(sipp.PROGRAM is None, reason=sipp.MISSING),
]

USERS = {"alice": "secret", "bob": "sesame"}
BOB = {"bob": USERS["bob"]}
TRANSPORTS = ("UDP", "TCP")

LOSS = 0.1
"""Share of lost datagrams at every hop: one in ten. The probability that one exchange fails is 0.19 to the 7th."""

PATIENT = ("-r", "50", "-max_retrans", "10", "-max_invite_retrans", "6")
"""Options for as many retransmissions as RFC 3261 17.1 has until 64*T1; by default SIPp gives up earlier."""


def with_server(scenario: Callable[[int], None]) -> None:
    """Run ``scenario`` in a thread, beside our server; its argument is the server's port."""

    async def run() -> None:
        async with serving(USERS) as port:
            await asyncio.to_thread(scenario, port)

    asyncio.run(run())


def call(
    server: int, caller: str, callee: str, transport: str = "UDP", calls: int = 1, options: Sequence[str] = ()
) -> None:
    """Register the contact of one SIPp for Bob, and let another SIPp call him through the server."""
    with playing(callee, server, transport=transport, calls=calls) as bob:
        play("register", server, transport=transport, users=BOB, contact_port=bob.port)
        play(caller, server, transport=transport, calls=calls, options=options)
        bob.wait()


@pytest.mark.interop(scenario="registration")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_register(transport: str) -> None:
    """RFC 3261 10, 22; RFC 7616: challenged, authenticated, and the binding is listed."""
    with_server(lambda server: play("register", server, transport=transport, users=USERS, calls=10))


@pytest.mark.interop(scenario="registration")
@pytest.mark.parametrize("transport", ["UDP"])
def test_a_lean_register_is_answered_within_its_size(transport: str) -> None:
    """SPEC C-20: the challenge that fits into few bytes is the MD5 one, which SIPp understands."""

    async def run() -> None:
        async with SIPServers(DOMAIN, USERS, port=0) as servers:
            await asyncio.to_thread(play, "register_lean", servers.address[1], users=USERS, calls=2)

    asyncio.run(run())


@pytest.mark.interop(scenario="registration refreshed, listed, removed")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_life_of_a_registration(transport: str) -> None:
    """RFC 3261 10.2.1 to 10.2.4; every REGISTER gets a new challenge."""
    with_server(lambda server: play("register_life", server, transport=transport, users=USERS, calls=4))


@pytest.mark.interop(scenario="wrong password, unknown user")
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("wrong", [{"alice": "guess"}, {"mallory": "secret"}], ids=["password", "user"])
def test_register_with_a_wrong_password(wrong: dict[str, str], transport: str) -> None:
    """RFC 3261 22: challenged, then refused, and not accepted: the scenario of the right password fails."""

    def refused(server: int) -> None:
        play("register_refused", server, transport=transport, users=wrong)
        with pytest.raises(ScenarioFailed, match="403"):
            play("register", server, transport=transport, users=wrong)

    with_server(refused)


@pytest.mark.interop(scenario="call by way of our proxy, re-INVITE, BYE")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_call_with_reinvite_and_bye(transport: str) -> None:
    """RFC 3261 13 to 16: every request of the dialog passes the proxy."""
    with_server(lambda server: call(server, "call", "answer", transport, calls=5))


@pytest.mark.interop(scenario="CANCEL by way of our proxy")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_cancel(transport: str) -> None:
    """RFC 3261 9, 16.10: CANCEL goes on to where the INVITE went, and 487 comes back."""
    with_server(lambda server: call(server, "cancel", "cancelled", transport))


@pytest.mark.interop(scenario="call to nobody")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_nobody_is_called_who_is_not_there(transport: str) -> None:
    """RFC 3261 16.5: 480, which the scenario of a call does not take for an answer."""

    def unanswered(server: int) -> None:
        with pytest.raises(ScenarioFailed, match="480"):
            play("short_call", server, port=free_port(), transport=transport)

    with_server(unanswered)


@pytest.mark.interop(scenario="registration under loss")
@pytest.mark.parametrize("transport", ["UDP"])
def test_registers_under_loss(transport: str) -> None:
    """RFC 3261 17: a fifth of all messages from and to SIPp is lost; retransmissions make up for it."""
    loss = ("-lost", "20", "-r", "50")
    with_server(lambda server: play("register", server, users=USERS, calls=20, options=loss))


@pytest.mark.interop(scenario="calls under loss")
@pytest.mark.parametrize("transport", ["UDP"])
def test_calls_under_loss(transport: str) -> None:
    """RFC 3261 13.3.1.4, 16, 17: a quarter of the caller's messages and of the final responses is lost."""
    with_server(lambda server: call(server, "lossy_call", "short_answer", calls=20, options=("-r", "50")))


@pytest.mark.interop(scenario="registration under loss")
@pytest.mark.skipif(not lossy.POSSIBLE, reason=lossy.MISSING)
@pytest.mark.parametrize("transport", ["UDP"])
def test_registers_where_the_network_loses(transport: str) -> None:
    """Every datagram of either side may be the one."""

    def register(server: int) -> None:
        play("register", server, users=USERS, calls=60, options=PATIENT, limit_s=40.0)

    with losing(LOSS) as lost:
        with_server(register)
        assert lost() > 10


@pytest.mark.interop(scenario="calls under loss")
@pytest.mark.skipif(not lossy.POSSIBLE, reason=lossy.MISSING)
@pytest.mark.parametrize("transport", ["UDP"])
def test_calls_where_the_network_loses(transport: str) -> None:
    """INVITE, its answers, ACK and BYE of all three: every call comes about and ends (RFC 3261 17)."""

    def calls(server: int) -> None:
        with playing("patient_answer", server, calls=40, options=PATIENT, limit_s=60.0) as bob:
            play("register", server, users=BOB, contact_port=bob.port, options=PATIENT)
            play("patient_call", server, calls=40, options=PATIENT, limit_s=45.0)

    with losing(LOSS) as lost:
        with_server(calls)
        assert lost() > 10
