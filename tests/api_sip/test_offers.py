"""Decision on incoming sessions, and the responses that the caller gets before it (SPEC C-05, C-12, C-15)."""

from __future__ import annotations

import asyncio

import pytest

from tests.api_sip.parties import BOB, run, two, until
from wanderbus.api.sip_mobility import SDPMediaDescriptionData, SIPCommunicationStatus, SIPSession
from wanderbus.errors import Closed, ConfigurationError, LocalProtocolError, SessionRefused, WanderbusError

pytestmark = pytest.mark.integration

Status = SIPCommunicationStatus


def test_a_handler_may_refuse_at_once() -> None:
    asked: list[SIPSession] = []

    def busy(session: SIPSession) -> int:
        asked.append(session)
        return 486

    async def scenario() -> None:
        async with two() as (alice, bob):
            bob.mobility.set_offer_handler(busy)
            with pytest.raises(SessionRefused, match="486") as refused:
                await alice.mobility.create_session(BOB)
            assert refused.value.status == 486
            assert asked[0].remote_uri == "sip:alice@example.org"
            assert asked[0].communication is Status.RINGING_HERE
            assert alice.mobility.sessions == {}
            await until(lambda: not bob.mobility.sessions)

    run(scenario())


def test_c12_while_a_handler_thinks_it_rings() -> None:
    decision = asyncio.Event()

    async def ask(session: SIPSession) -> None:
        await decision.wait()

    async def scenario() -> None:
        async with two() as (alice, bob):
            bob.mobility.set_offer_handler(ask)
            calling = asyncio.create_task(alice.mobility.create_session(BOB))
            await until(lambda: [*alice.mobility.sessions.values()][:1])
            (id,) = alice.mobility.sessions
            await until(lambda: alice.mobility.sessions[id].communication is Status.RINGING_THERE)
            assert bob.mobility.sessions[id].communication is Status.RINGING_HERE
            decision.set()
            assert (await calling).communication is Status.CONNECTED

    run(scenario())


def test_a_handler_that_fails_refuses() -> None:
    def fails(session: SIPSession) -> None:
        raise RuntimeError("a fault of the application")

    async def fails_later(session: SIPSession) -> None:
        raise RuntimeError("a fault of the application")

    async def scenario() -> None:
        async with two() as (alice, bob):
            for handler in (fails, fails_later):
                bob.mobility.set_offer_handler(handler)
                with pytest.raises(SessionRefused, match="500"):
                    await alice.mobility.create_session(BOB)

    run(scenario())


def test_giving_up_cancels_the_invitation() -> None:
    async def never(session: SIPSession) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with two() as (alice, bob):
            bob.mobility.set_offer_handler(never)
            calling = asyncio.create_task(alice.mobility.create_session(BOB))
            await until(lambda: bob.mobility.sessions)
            calling.cancel()
            await until(lambda: not bob.mobility.sessions and not alice.mobility.sessions)
            assert bob.callbacks.names[-2:] == ["session_disconnected", "session_removed"]

    run(scenario())


def test_media_without_counterpart_are_refused() -> None:
    async def scenario() -> None:
        voice = SDPMediaDescriptionData(4002, "RTP/AVP", media="audio", formats=("0",))
        async with two({"media": (voice,)}) as (alice, _):
            with pytest.raises(SessionRefused, match="488"):
                await alice.mobility.create_session(BOB)

    run(scenario())


def test_without_local_media_there_are_no_sessions() -> None:
    async def scenario() -> None:
        async with two({"media": ()}) as (alice, bob):
            with pytest.raises(LocalProtocolError, match="nothing to offer"):
                await alice.mobility.create_session(BOB)
            with pytest.raises(SessionRefused, match="488"):
                await bob.mobility.create_session("alice@example.org")

    run(scenario())


@pytest.mark.parametrize(
    ("uri", "error"),
    [("nonsense", ConfigurationError), ("sip:carol@example.org", SessionRefused)],
)
def test_unknown_callees(uri: str, error: type[WanderbusError]) -> None:
    async def scenario() -> None:
        async with two() as (alice, _):
            with pytest.raises(error):
                await alice.mobility.create_session(uri)
            assert alice.mobility.sessions == {}

    run(scenario())


def test_c05_the_callee_may_end_the_session() -> None:
    async def scenario() -> None:
        async with two() as (alice, bob):
            session = await alice.mobility.create_session(BOB)
            await bob.mobility.terminate_session(session.id)
            await until(lambda: not alice.mobility.sessions)
            assert alice.callbacks.names[-3:] == [
                "session_disconnected",
                "remote_media_disconnected",
                "session_removed",
            ]

    run(scenario())


def test_terminating_ends_what_is_under_way() -> None:
    async def never(session: SIPSession) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with two() as (alice, bob):
            bob.mobility.set_offer_handler(never)
            calling = asyncio.create_task(alice.mobility.create_session(BOB))
            await until(lambda: bob.mobility.sessions)
            await alice.mobility.terminate()
            with pytest.raises(Closed):
                await calling
            with pytest.raises(Closed):
                await alice.mobility.create_session(BOB)

    run(scenario())
