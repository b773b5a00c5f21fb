"""SIPp calls our user agent, directly and through our proxy (RFC 3261 13 to 15)."""

from __future__ import annotations

import asyncio

import pytest

from tests.api_sip.parties import DOMAIN, PASSWORDS, Recorder, properties, until
from tests.interop import sipp
from tests.interop.server import serving
from tests.interop.sipp import play
from wanderbus.api.sip_mobility import SIPMobility

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sipp.PROGRAM is None, reason=sipp.MISSING),
]

SERVED = ["session_created", "session_connected", "session_disconnected", "session_removed"]
RUN_S_MAX = 40.0


def phone(server: int, transport: str) -> SIPMobility:
    """Bob's, for the server at that port."""
    return SIPMobility(properties("bob", f"127.0.0.1:{server}", transport=transport))


@pytest.mark.parametrize("transport", ["UDP", "TCP"])
@pytest.mark.parametrize("way", ["direct", "proxied"])
def test_call_with_reinvite_and_bye(way: str, transport: str) -> None:
    """The re-INVITE moves the caller's media, as the listener is told (SPEC C-19); BYE ends the session."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX), serving(PASSWORDS) as server, phone(server, transport) as bob:
            told = Recorder()
            bob.add_listener(told)
            await bob.register()
            port = server if way == "proxied" else bob.address[1]
            callee = f"sip:bob@{DOMAIN if way == 'proxied' else f'127.0.0.1:{port}'}"
            await asyncio.to_thread(play, "call", port, transport=transport, callee=callee)
            await until(lambda: "session_removed" in told.names)
            assert [name for name in told.names if name in SERVED] == SERVED
            media = [each.remote_media.port for each in told.sessions if each is not None and each.remote_media]
            assert media[0] == 7001
            assert media[-1] == 7003

    asyncio.run(scenario())


@pytest.mark.parametrize("transport", ["UDP", "TCP"])
def test_cancel_before_the_user_decides(transport: str) -> None:
    """RFC 3261 9.2: the phone rings, the caller gives up, INVITE is answered 487."""

    async def scenario() -> None:
        async with asyncio.timeout(RUN_S_MAX), serving(PASSWORDS) as server, phone(server, transport) as bob:
            told = Recorder()
            bob.add_listener(told)
            bob.set_offer_handler(lambda session: asyncio.sleep(RUN_S_MAX))
            await bob.register()
            await asyncio.to_thread(play, "cancel", server, transport=transport)
            await until(lambda: "session_removed" in told.names)
            assert "session_connected" not in told.names

    asyncio.run(scenario())
