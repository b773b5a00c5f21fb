"""Programs on the server's host beside the server: Kamailio in place of our SIP server, and a media relay."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from demo import DOMAIN, json_lines
from demo.network import SERVER, Network
from harness import kamailio, media_relays
from harness.ports import free_port
from harness.udp_probe import probe, relay_answer, relay_question, sip_question
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess, Crew

SIP: Final = ("wanderbus", "kamailio")
RELAYS: Final = ("none", "wanderbus", "rtpengine")

SipServer = Literal["wanderbus", "kamailio"]
RelayKind = Literal["none", "wanderbus", "rtpengine"]

NG_PORT: Final = 2223
ANSWER_S: Final = 15.0
GOODBYE_S: Final = 5.0
PORTS: Final = "20000-29999"
"""Ports of the relay; none of them is in the ephemeral range of the system."""


def preflight(sip: SipServer, relay: RelayKind) -> None:
    """Raise :class:`CannotRunError` for a program that is not installed."""
    if sip == "kamailio" and kamailio.PROGRAM is None:
        raise CannotRunError(kamailio.MISSING)
    if relay == "rtpengine" and media_relays.RTPENGINE is None:
        raise CannotRunError(media_relays.MISSING)


class SipAndRelay:
    """The sip_and_relay of one run; ``passwords`` are by user name."""

    def __init__(
        self,
        sip: SipServer,
        relay: RelayKind,
        *,
        work: Path,
        network: Network,
        crew: Crew,
        passwords: Mapping[str, str],
        sip_port: int,
    ) -> None:
        self._sip = sip
        self._relay = relay
        self._work = work
        self._network = network
        self._crew = crew
        # The broker is a user of Kamailio; with our own SIP server it needs no password.
        self.users = {**passwords, "broker": secrets.token_urlsafe(12)} if sip == "kamailio" else passwords
        self._address = network.address(SERVER)
        self._sip_port = sip_port
        # On loopback all programs of this machine share the command port; a namespace has its own.
        self._ng = ("127.0.0.1", free_port() if network.needs_order else NG_PORT)
        self._children: list[AsyncProcess] = []

    @property
    def _relay_apart(self) -> bool:
        """Return whether the relay is a process of its own; our relay inside our server is not."""
        return self._relay == "rtpengine" or (self._relay == "wanderbus" and self._sip == "kamailio")

    async def start(self) -> None:
        """Start them in the order of their dependencies; :class:`CannotRunError` if one does not start."""
        if self._relay == "rtpengine":
            pid_file = self._work / "rtpengine.pid"
            await self._start(
                "rtpengine", media_relays.rtpengine_command(self._address, self._ng, pid_file, ports=PORTS)
            )
        elif self._relay_apart:
            await self._start("relay", media_relays.own_command(self._address, self._ng, ports=PORTS))
        if self._relay_apart:
            await self._ask(*self._ng, relay_question("ping"))
        if self._sip == "kamailio":
            await self._start("kamailio", self._kamailio().install(self._work / "kamailio"))
            await self._ask(self._address, self._sip_port, sip_question(DOMAIN))

    def arguments(self) -> list[str]:
        """Return the options of ``wanderbus up`` for them."""
        if self._sip == "kamailio":
            return ["--sip-server", f"sip:{self._address}:{self._sip_port}"]
        if self._relay == "none":
            return ["--port", str(self._sip_port)]
        where = ["--relays", f"{self._ng[0]}:{self._ng[1]}"] if self._relay_apart else ["--relay"]
        return ["--port", str(self._sip_port), *where, "--relay-calls", "all"]

    async def result(self) -> dict[str, Any]:
        """Return which program served SIP and which relayed, and the datagrams that a separate relay has forwarded so
        far.
        """
        result: dict[str, Any] = {"sip": self._sip, "relay": self._relay, "relayed_datagrams": None}
        if self._relay_apart:
            answer = relay_answer(await self._ask(*self._ng, relay_question("statistics")))
            result["relayed_datagrams"] = media_relays.datagrams_in(answer["statistics"])
        return result

    @property
    def failures(self) -> list[str]:
        """Return the last log line of each that has ended by itself."""
        return [f"{child.name} had failed: {child.last_words()}" for child in self._children if not child.running]

    async def stop(self) -> None:
        """Stop them in order."""
        await asyncio.gather(*(child.end(GOODBYE_S) for child in self._children))

    def _kamailio(self) -> kamailio.Kamailio:
        return kamailio.Kamailio(
            domain=DOMAIN,
            users=self.users,
            address=self._address,
            port=self._sip_port,
            relays=[self._ng] if self._relay_apart else [],
            relay_for_all=True,
        )

    async def _start(self, name: str, argv: list[str]) -> None:
        child = await self._crew.start(name, self._network.command(SERVER, argv), lambda line: None)
        self._children.append(child)

    async def _ask(self, host: str, port: int, text: str) -> str:
        """Send a probe from the server's host; return the answer."""
        answers: list[str] = []

        def on_line(line: str) -> None:
            answers.append((json_lines.parse(line) or {})["answer"])

        argv = self._network.command(SERVER, probe(host, port, text))
        asking = await self._crew.start("asking", argv, on_line)
        waits = [asyncio.create_task(each.wait()) for each in (asking, *self._children)]
        await asyncio.wait(waits, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asking.end(0.0)
        if self.failures:
            raise CannotRunError(self.failures[0])
        if not answers:
            raise CannotRunError(f"{self._children[-1].name} did not answer within {ANSWER_S:.0f} s")
        return answers[-1]
