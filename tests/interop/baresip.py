"""baresip (Debian's baresip-core) without a screen or sound: driven over its control socket; its audio is looped back.

Version 1.0 gives up on a challenge that offers any algorithm besides MD5, in any order, so it needs a server that
offers MD5 alone. It uses no loopback interface for its media: another interface with an address must exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from harness.ports import free_port
from tests.api_sip.parties import PASSWORDS
from tests.certificates import Certificates
from tests.interop.kamailio import DOMAIN
from tests.interop.phones import NOTE_CHARACTERS_MAX, STEP_S_MAX, Phone, Transport, running, wait
from tests.interop.server import Served
from wanderbus.testbed.async_processes import AsyncProcess

PROGRAM = shutil.which("baresip")
MISSING = "baresip is not installed: apt-get install baresip-core"
MODULES = ("g711.so", "aubridge.so", "ctrl_tcp.so")

_STATES = {
    "CALL_INCOMING": "ringing",
    "CALL_RINGING": "calling",
    "CALL_PROGRESS": "calling",
    "CALL_ESTABLISHED": "talking",
    "CALL_CLOSED": "idle",
}


class Baresip(Phone):
    """One baresip with its one user; :attr:`events` are the events that it reported, in order."""

    def __init__(self, user: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(user)
        self.events: list[dict[str, Any]] = []
        self._reader = reader
        self._writer = writer
        self._state = "idle"
        self._tokens = itertools.count()
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def call(self, uri: str) -> None:
        self._state = "calling"
        await self.command("dial", uri)

    async def answer(self) -> None:
        await self.command("accept")

    async def hang_up(self) -> None:
        await self.command("hangup")

    async def state(self) -> str:
        return self._state

    async def audio_packets(self) -> int:
        found = re.search(r"rcvd=(\d+)", await self.command("audio_debug"))
        return int(found[1]) if found else 0

    async def register(self, account: str) -> str:
        """Add an account, given as a line in baresip's own syntax; return the event with the result of its REGISTER."""
        await self.command("uanew", account)
        ended = ("REGISTER_OK", "REGISTER_FAIL")
        await wait(lambda: any(each["type"] in ended for each in self.events), lambda: f"{self.events}")
        (first, *_) = [each for each in self.events if each["type"] in ended]
        return f"{first['type']} {first.get('param')}"

    async def command(self, name: str, parameters: str = "") -> str:
        """Send a command; return its output, AssertionError if it fails."""
        token = str(next(self._tokens))
        answered = self._answers[token] = asyncio.get_running_loop().create_future()
        text = json.dumps({"command": name, "params": parameters, "token": token}).encode()
        self._writer.write(b"%d:%s," % (len(text), text))
        async with asyncio.timeout(STEP_S_MAX):
            answer = await answered
        assert answer["ok"], answer
        return str(answer["data"])

    async def listen(self) -> None:
        """Read its messages (netstrings of JSON) until it ends."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                length = int((await self._reader.readuntil(b":"))[:-1])
                said = json.loads((await self._reader.readexactly(length + 1))[:-1])
                if said.get("event"):
                    self.events.append(said)
                    self._state = _STATES.get(said["type"], self._state)
                elif answered := self._answers.pop(said["token"], None):
                    answered.set_result(said)


def account(user: str, served: Served, transport: Transport, password: str | None = None) -> str:
    """Return the line that makes baresip the user's phone at our server."""
    port = served.tls_port if transport == "TLS" else served.port
    way = f"transport={transport.lower()}"
    return (
        f"<sip:{user}@{DOMAIN};{way}>;auth_pass={password or PASSWORDS[user]}"
        f';outbound="sip:127.0.0.1:{port};{way}";regint=60'
    )


@contextlib.asynccontextmanager
async def baresip(user: str, certificates: Certificates) -> AsyncIterator[Baresip]:
    """Run baresip for ``user``, not registered yet; it believes in the authority of ``certificates``."""
    if PROGRAM is None:
        raise FileNotFoundError(MISSING)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="wanderbus-baresip-") as name:
        directory = Path(name)
        (directory / "config").write_text(_configuration(port, certificates))
        (directory / "accounts").touch()
        (directory / "contacts").touch()
        said = directory / "said"
        async with running([PROGRAM, "-4", "-v", "-s", "-f", name], said, name) as process:
            reader, writer = await _connect(port, process, said)
            phone = Baresip(user, reader, writer)
            listening = asyncio.create_task(phone.listen())
            try:
                yield phone
                # It takes its leave of the registrar before it ends.
                await phone.command("quit")
                assert await process.wait(STEP_S_MAX) is not None
            except BaseException as error:
                error.add_note(said.read_text(errors="replace")[-NOTE_CHARACTERS_MAX:])
                raise
            finally:
                listening.cancel()
                writer.close()


async def _connect(port: int, process: AsyncProcess, said: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connected() -> bool:
        assert process.running, f"baresip does not start:\n{said.read_text(errors='replace')}"
        with contextlib.suppress(ConnectionError):
            connections.append(await asyncio.open_connection("127.0.0.1", port))
        return bool(connections)

    await wait(connected, lambda: f"baresip has no control socket:\n{said.read_text(errors='replace')}")
    return connections[0]


def _configuration(control_port: int, certificates: Certificates) -> str:
    lines = [
        "poll_method epoll",
        "sip_listen 127.0.0.1:0",
        f"sip_cafile {certificates.authority}",
        "call_local_timeout 30",
        "call_max_calls 1",
        # The audio of the other side is sent back to it; no sound device is opened.
        "audio_source aubridge,loop",
        "audio_player aubridge,loop",
        "audio_alert aubridge,alert",
        f"ctrl_tcp_listen 127.0.0.1:{control_port}",
        "module_path /usr/lib/baresip/modules",
        *(f"module {module}" for module in MODULES),
        "module_app menu.so",
        # A tone would take the player out of the loop.
        "ringback_disabled yes",
        "audio_path /nonexistent",
    ]
    return "\n".join([*lines, ""])
