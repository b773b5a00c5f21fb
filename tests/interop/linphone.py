"""linphone (Debian's linphone-cli) without a screen or sound: its console, driven over its standard input.

It plays a file into its calls and records the audio it receives into another. Its TLS cannot check addresses in a
certificate, only names, so the check of the certificate's name is off; its signature is checked.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
import tempfile
import wave
from collections.abc import AsyncIterator
from pathlib import Path

from harness.ports import free_port
from tests.api_sip.parties import PASSWORDS
from tests.certificates import Certificates
from tests.interop.kamailio import DOMAIN
from tests.interop.phones import NOTE_CHARACTERS_MAX, STEP_S_MAX, Phone, Transport, running, wait
from tests.interop.server import Served
from wanderbus.testbed.async_processes import AsyncProcess

PROGRAM = shutil.which("linphonec")
MISSING = "linphone is not installed: apt-get install linphone-cli"

_PROMPT = "linphonec> "
_RATE_HZ = 8_000
_PACKET_BYTES = 320
"""Bytes of recorded sound in the 20 ms of one packet."""
_WAV_HEADER_BYTES = 44

_STATES = {
    "IncomingReceived": "ringing",
    "OutgoingInit": "calling",
    "OutgoingProgress": "calling",
    "OutgoingRinging": "calling",
    "Connected": "answered",
    "StreamsRunning": "talking",
}


class Linphone(Phone):
    """One linphone daemon with its one user."""

    def __init__(self, user: str, process: AsyncProcess, said: Path) -> None:
        super().__init__(user)
        self._process = process
        self._said = said
        self._read = 0
        self._heard = said.with_name("heard.wav")

    async def call(self, uri: str) -> None:
        self._heard.unlink(missing_ok=True)
        await self.command(f"call {uri}")

    async def answer(self) -> None:
        self._heard.unlink(missing_ok=True)
        await self.command("answer")

    async def hang_up(self) -> None:
        await self.command("terminate")

    async def state(self) -> str:
        answer = await self.command("calls")
        found = re.search(r"(?m)^\d+ +\|[^|]*\| *(\w+) *\|", answer)
        return "idle" if found is None else _STATES.get(found[1], found[1])

    async def audio_packets(self) -> int:
        sound = self._heard.read_bytes()[_WAV_HEADER_BYTES:] if self._heard.exists() else b""
        return len(sound.replace(b"\0\0", b"")) // _PACKET_BYTES

    async def leave(self) -> None:
        """Remove the registration and end."""
        self._process.write(b"quit\n")
        assert await self._process.wait(STEP_S_MAX) is not None

    async def refused(self) -> bool:
        """Return whether the registrar has refused the password; linphone then prompts for another one."""
        return "\nPassword for " in self._said.read_text(errors="replace")

    async def registered(self) -> bool:
        """Return whether the registrar has accepted the registration."""
        return "registered, identity" in await self.command("status register")

    async def command(self, line: str) -> str:
        """Send a command; return its output, AssertionError if it fails."""
        self._process.write(line.encode() + b"\n")
        answer = ""

        def answered() -> bool:
            nonlocal answer
            since = self._said.read_text(errors="replace")[self._read :]
            answer = since.partition(f"{line}\n")[2]
            return _PROMPT in answer

        await wait(answered, lambda: f"linphone says nothing to {line!r}")
        self._read = self._said.read_text(errors="replace").rindex(_PROMPT)
        return answer


@contextlib.asynccontextmanager
async def linphone(
    user: str, served: Served, transport: Transport, certificates: Certificates, password: str | None = None
) -> AsyncIterator[Linphone]:
    """Run linphone for ``user`` of our server; it registers at once."""
    if PROGRAM is None:
        raise FileNotFoundError(MISSING)
    with tempfile.TemporaryDirectory(prefix="wanderbus-linphone-") as name:
        directory = Path(name)
        for part in (".local/share/linphone", ".config/linphone"):
            (directory / part).mkdir(parents=True)
        (directory / "settings").write_text(_configuration(user, served, transport, certificates, password))
        _write_tone(directory / "tone.wav")
        said, log = directory / "said", directory / "log"
        command = [PROGRAM, "-c", "settings", "-d", "6", "-l", str(log)]
        async with running(command, said, name) as process:
            phone = Linphone(user, process, said)
            try:
                await phone.command("soundcard use files")
                await phone.command(f"play {directory / 'tone.wav'}")
                await phone.command(f"record {directory / 'heard.wav'}")
                yield phone
                if not await phone.refused():
                    await phone.leave()
            except BaseException as error:
                error.add_note(log.read_text(errors="replace")[-NOTE_CHARACTERS_MAX:])
                raise


def _configuration(
    user: str, served: Served, transport: Transport, certificates: Certificates, password: str | None
) -> str:
    server = f"<sip:127.0.0.1:{served.tls_port if transport == 'TLS' else served.port};transport={transport.lower()}>"
    return f"""
[sip]
sip_port=-1
sip_tcp_port=-1
sip_tls_port=-1
root_ca={certificates.authority}
verify_server_cn=0
default_proxy=0
[auth_info_0]
username={user}
passwd={password or PASSWORDS[user]}
realm={DOMAIN}
[proxy_0]
reg_proxy={server}
reg_route={server}
reg_identity=sip:{user}@{DOMAIN}
reg_expires=60
reg_sendregister=1
[net]
firewall_policy=none
[rtp]
audio_rtp_port={free_port()}
[video]
enabled=0
capture=0
display=0
automatically_initiate=0
"""


def _write_tone(file: Path) -> None:
    """Write half a minute of a saw of 50 Hz, at no place silent for long."""
    with wave.open(str(file), "wb") as tone:
        tone.setnchannels(1)
        tone.setsampwidth(2)
        tone.setframerate(_RATE_HZ)
        period = b"".join(struct.pack("<h", level * 100) for level in range(-80, 80))
        tone.writeframes(period * 50 * 30)
