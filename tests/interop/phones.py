"""Interface of telephones of any make, and the calls that the tests make with any two of them.

Our own user agent is one of them (:class:`OurPhone`), so that every pair passes the same test. Media use no sound
hardware; the tests see from the datagrams that they arrive.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal

from tests.api_sip.parties import PASSWORDS, Recorder, properties
from tests.certificates import Certificates
from tests.interop.kamailio import DOMAIN
from tests.interop.server import Served, serving_all
from wanderbus.api.sip_mobility import SDPMediaDescriptionData, SIPMobility
from wanderbus.errors import SessionRefused
from wanderbus.mobility.session.session import SIPCommunicationStatus
from wanderbus.sip.proxy.default_routing import OnPathRouting
from wanderbus.testbed.async_processes import AsyncProcess
from wanderbus.testbed.processes import END_S_MAX

Transport = Literal["UDP", "TCP", "TLS"]

STEP_S_MAX = 10.0
"""Longest time for one action of a phone, in seconds."""

PACKETS = 10
"""Packets of audio from the other side that prove it is audible: a fifth of a second of it."""

NOTE_CHARACTERS_MAX = 30_000
"""Bound of a telephone's output in the report of a failure."""

RUN_S_MAX = 60.0

_LOOK_S = 0.03


class Phone(ABC):
    """One user with one telephone, which makes and takes one call at a time."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.uri = f"sip:{user}@{DOMAIN}"

    @abstractmethod
    async def call(self, uri: str) -> None:
        """Invite ``uri``; return when that is on its way."""

    @abstractmethod
    async def answer(self) -> None:
        """Take the call that comes in."""

    @abstractmethod
    async def hang_up(self) -> None:
        """End the call: CANCEL, refuse, or BYE, as its state demands."""

    @abstractmethod
    async def state(self) -> str:
        """Return ``idle``, ``calling``, ``ringing`` (a call comes in) or ``talking``."""

    @abstractmethod
    async def audio_packets(self) -> int:
        """Return how much audio came from the other side of the call so far, in packets of 20 ms."""

    async def until(self, state: str) -> None:
        """Wait until the phone is in ``state``; AssertionError with its actual state otherwise."""
        found = ""

        async def reached() -> bool:
            nonlocal found
            found = await self.state()
            return found == state

        await wait(reached, lambda: f"{self.user}'s phone is {found}, not {state}")

    async def wait_for_audio(self) -> None:
        """Wait until audio from the other side arrives; AssertionError if none does."""

        async def reached() -> bool:
            return await self.audio_packets() >= PACKETS

        await wait(reached, lambda: f"{self.user} hears nothing")


async def wait(
    reached: Callable[[], Awaitable[bool]] | Callable[[], bool], otherwise: Callable[[], str] = lambda: "in vain"
) -> None:
    """Return when ``reached`` gives true, at once or when awaited; AssertionError if it takes too long."""
    try:
        async with asyncio.timeout(STEP_S_MAX):
            while True:
                found = reached()
                if found if isinstance(found, bool) else await found:
                    return
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise AssertionError(otherwise()) from None


async def talk(caller: Phone, callee: Phone, ender: Phone) -> None:
    """Call, ring, answer, hear each other, hang up (RFC 3261 13 to 15)."""
    await caller.call(callee.uri)
    await callee.until("ringing")
    await caller.until("calling")
    await callee.answer()
    for phone in (caller, callee):
        await phone.until("talking")
    for phone in (caller, callee):
        await phone.wait_for_audio()
    await ender.hang_up()
    for phone in (caller, callee):
        await phone.until("idle")


async def give_up(caller: Phone, callee: Phone) -> None:
    """The caller does not wait for the answer: CANCEL and 487 (RFC 3261 9)."""
    await caller.call(callee.uri)
    await callee.until("ringing")
    await caller.hang_up()
    for phone in (caller, callee):
        await phone.until("idle")


async def refuse(caller: Phone, callee: Phone) -> None:
    """The callee does not want to (RFC 3261 21.4.24, 21.6.2)."""
    await caller.call(callee.uri)
    await callee.until("ringing")
    await callee.hang_up()
    for phone in (caller, callee):
        await phone.until("idle")
    if isinstance(caller, OurPhone):
        await wait(lambda: caller.refusal in (486, 603), lambda: f"refused with {caller.refusal}")


class OurPhone(Phone):
    """A user agent of this package that takes audio, with a socket where that arrives and is sent back from."""

    def __init__(self, user: str, mobility: SIPMobility, audio: _Audio) -> None:
        super().__init__(user)
        self.mobility = mobility
        self.told = Recorder()
        mobility.add_listener(self.told)
        mobility.set_offer_handler(lambda session: self._decide())
        self._audio = audio
        self._decision: asyncio.Future[int | None] | None = None
        self._calling: asyncio.Task[None] | None = None
        self.refusal: int | None = None
        """Status of the refusal of the last call, if it was refused."""

    async def call(self, uri: str) -> None:
        self._audio.received = 0
        self._calling = asyncio.create_task(self._create(uri))

    async def answer(self) -> None:
        self._audio.received = 0
        self._decide_with(None)

    async def hang_up(self) -> None:
        if self._calling is not None and not self._calling.done():
            self._calling.cancel()
        elif self._decision is not None and not self._decision.done():
            self._decide_with(486)
        else:
            for session in list(self.mobility.sessions):
                await self.mobility.terminate_session(session)

    async def state(self) -> str:
        if not self.mobility.sessions:
            return "idle"
        (session,) = self.mobility.sessions.values()
        if session.communication is SIPCommunicationStatus.CONNECTED:
            return "talking"
        return "ringing" if self._decision is not None and not self._decision.done() else "calling"

    async def audio_packets(self) -> int:
        return self._audio.received

    async def _create(self, uri: str) -> None:
        self.refusal = None
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self.mobility.create_session(uri)
            except SessionRefused as refused:
                self.refusal = refused.status

    def _decide(self) -> asyncio.Future[int | None]:
        self._decision = asyncio.get_running_loop().create_future()
        return self._decision

    def _decide_with(self, status: int | None) -> None:
        assert self._decision is not None
        self._decision.set_result(status)


class _Audio(asyncio.DatagramProtocol):
    """Sends every packet of audio back to where it came from."""

    received = 0

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        self._transport = transport

    def datagram_received(self, data: bytes, source: tuple[str, int]) -> None:
        if data[:1] == b"\x80":
            self.received += 1
            self._transport.sendto(data, source)


@contextlib.asynccontextmanager
async def our_phone(user: str, served: Served, transport: Transport) -> AsyncIterator[OurPhone]:
    """Our user agent as ``user``, registered, with PCMU as its medium; its own listener has no TLS."""
    loop = asyncio.get_running_loop()
    socket, audio = await loop.create_datagram_endpoint(_Audio, local_addr=("127.0.0.1", 0))
    port: int = socket.get_extra_info("sockname")[1]
    medium = SDPMediaDescriptionData(port, "RTP/AVP", media="audio", formats=("0",))
    options = {"transport": "UDP" if transport == "TLS" else transport, "media": (medium,)}
    try:
        async with SIPMobility(properties(user, f"127.0.0.1:{served.port}", **options)) as mobility:
            await mobility.register()
            yield OurPhone(user, mobility, audio)
    finally:
        socket.close()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end, within ``RUN_S_MAX``."""

    async def bounded() -> None:
        async with asyncio.timeout(RUN_S_MAX):
            await scenario

    asyncio.run(bounded())


@contextlib.asynccontextmanager
async def phone_server(transport: Transport, certificates: Certificates, **options: Any) -> AsyncIterator[Served]:
    """Our registrar and proxy as telephones need it, which reach each other over TCP and TLS by way of it alone."""
    routing = None if transport == "UDP" else OnPathRouting()
    chosen: dict[str, Any] = {"algorithms": ("MD5",), "routing": routing, "certificates": certificates}
    async with serving_all(PASSWORDS, **(chosen | options)) as served:
        yield served


@contextlib.asynccontextmanager
async def running(command: Sequence[str], said: Path, home: str) -> AsyncIterator[AsyncProcess]:
    """Run a program that reads its standard input, and end it with the block; its output goes to the file ``said``."""
    process = await AsyncProcess.start(
        command[0], command, said, read=False, cwd=said.parent, more_environment={"HOME": home}
    )
    try:
        yield process
    finally:
        await process.end(END_S_MAX)
