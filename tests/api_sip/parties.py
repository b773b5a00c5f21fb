"""Alice, Bob and their SIP servers on loopback sockets, and a listener that remembers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

from wanderbus.api.sip_mobility import (
    SDPMediaDescriptionData,
    SIPMobility,
    SIPMobilityListener,
    SIPMobilityProperties,
    SIPServers,
    SIPSession,
)

DOMAIN = "example.org"
PASSWORDS = {"alice": "secret", "bob": "sesame"}
RUN_S_MAX = 30.0
BOB = f"sip:bob@{DOMAIN}"


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(RUN_S_MAX):
            await scenario

    asyncio.run(bounded())


async def until(reached: Callable[[], object]) -> None:
    """Run the loop until ``reached`` is true; the scenario's own timeout ends the wait."""
    while not reached():
        await asyncio.sleep(0.005)


class Recorder(SIPMobilityListener):
    """Records every callback: its name and its session."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sessions: list[SIPSession | None] = []

    def record(self, name: str, session: SIPSession | None = None) -> None:
        self.names.append(name)
        self.sessions.append(session)

    def last(self, name: str) -> SIPSession:
        """The session of the last callback of that name."""
        found = [session for each, session in zip(self.names, self.sessions, strict=True) if each == name][-1]
        assert found is not None
        return found

    def registered(self, expires_s: float) -> None:
        self.record("registered")

    def unregistered(self, reason: str) -> None:
        self.record("unregistered")

    def session_created(self, session: SIPSession) -> None:
        self.record("session_created", session)

    def session_removed(self, session: SIPSession, reason: str) -> None:
        self.record("session_removed", session)

    def session_changed(self, session: SIPSession) -> None:
        self.record("session_changed", session)

    def session_connected(self, session: SIPSession) -> None:
        self.record("session_connected", session)

    def session_disconnected(self, session: SIPSession) -> None:
        self.record("session_disconnected", session)

    def session_reconnected(self, session: SIPSession) -> None:
        self.record("session_reconnected", session)

    def remote_media_connected(self, session: SIPSession) -> None:
        self.record("remote_media_connected", session)

    def remote_media_disconnected(self, session: SIPSession) -> None:
        self.record("remote_media_disconnected", session)

    def local_ip_changed(self, address: str) -> None:
        self.record("local_ip_changed")


def properties(user: str, server: str, **options: Any) -> SIPMobilityProperties:
    """Properties of ``user``, with a home server on 127.0.0.1 unless given otherwise."""
    given: dict[str, Any] = {
        "uri": f"{user}@{DOMAIN}",
        "server": server,
        "password": PASSWORDS.get(user),
        "local_address": "127.0.0.1",
        "media": (SDPMediaDescriptionData(4000),),
    }
    return SIPMobilityProperties(**(given | options))


class Party(NamedTuple):
    """One user with its recorded callbacks."""

    mobility: SIPMobility
    callbacks: Recorder


@contextlib.asynccontextmanager
async def registered(user: str, servers: SIPServers, **options: Any) -> AsyncIterator[Party]:
    """``user``, registered."""
    async with SIPMobility(properties(user, servers.place, **options)) as mobility:
        callbacks = Recorder()
        mobility.add_listener(callbacks)
        await mobility.register()
        yield Party(mobility, callbacks)


@contextlib.asynccontextmanager
async def two(
    alice: dict[str, Any] | None = None, bob: dict[str, Any] | None = None
) -> AsyncIterator[tuple[Party, Party]]:
    """Alice and Bob, registered, with the properties given for each."""
    async with (
        SIPServers(DOMAIN, PASSWORDS, port=0) as servers,
        registered("alice", servers, **(alice or {})) as one,
        registered("bob", servers, **(bob or {})) as other,
    ):
        yield one, other
