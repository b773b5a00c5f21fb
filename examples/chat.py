"""A chat between two users who know each other by name alone: SIP finds the other, the words go straight there.

No broker, no events: registrar and proxy are in this process, the words are plain UDP datagrams between the addresses
that the two sides agreed on. Run it with ``.venv/bin/python examples/chat.py``.
"""

from __future__ import annotations

import asyncio
import sys

from wanderbus.api.sip_mobility import (
    SDPMediaDescriptionData,
    SIPMobility,
    SIPMobilityListener,
    SIPMobilityProperties,
    SIPServers,
    SIPSession,
    remote_media,
)

PASSWORDS = {"alice": "secret", "bob": "sesame"}

CONVERSATION = (
    ("alice", "Are you there, Bob?"),
    ("bob", "I am. How did you find me?"),
    ("alice", "By your name: the proxy knew the rest."),
    ("bob", "And where do your words come from?"),
    ("alice", "From where our session says, past every server."),
)


class Phone(asyncio.DatagramProtocol, SIPMobilityListener):
    """One person's end of the chat: receives messages, and learns the other's address."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[str] = asyncio.Queue()
        self.other: tuple[str, int] | None = None

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Keep what arrived from the other one."""
        self.received.put_nowait(data.decode())

    def session_connected(self, session: SIPSession) -> None:
        """Record the other's new address."""
        self.other = remote_media(session)[0].destination
        print(f"{session.owner_uri} is in touch with {session.remote_uri}")


async def open_phone() -> tuple[Phone, asyncio.DatagramTransport]:
    """Return a phone that listens on a free port."""
    loop = asyncio.get_running_loop()
    transport, phone = await loop.create_datagram_endpoint(Phone, local_addr=("127.0.0.1", 0))
    return phone, transport


def properties(name: str, transport: asyncio.DatagramTransport, server: str) -> SIPMobilityProperties:
    """Return who ``name`` is, and that words are received where ``transport`` listens."""
    port = transport.get_extra_info("sockname")[1]
    return SIPMobilityProperties(
        uri=f"{name}@localhost", password=PASSWORDS[name], server=server, media=(SDPMediaDescriptionData(port),)
    )


async def main() -> int:
    """Let the two find each other and talk; return the exit status."""
    phones = {name: await open_phone() for name in PASSWORDS}
    async with (
        SIPServers("localhost", PASSWORDS, port=0) as servers,
        SIPMobility(properties("bob", phones["bob"][1], servers.place)) as bob,
        SIPMobility(properties("alice", phones["alice"][1], servers.place)) as alice,
    ):
        for name, mobility in (("bob", bob), ("alice", alice)):
            mobility.add_listener(phones[name][0])
            await mobility.register()
        session = await alice.create_session("sip:bob@localhost")
        for speaker, words in CONVERSATION:
            phone, transport = phones[speaker]
            transport.sendto(words.encode(), phone.other)
            (listener,) = phones.keys() - {speaker}
            print(f"{listener} receives: {await asyncio.wait_for(phones[listener][0].received.get(), 5)}")
        await alice.terminate_session(session.id)
    for _, transport in phones.values():
        transport.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
