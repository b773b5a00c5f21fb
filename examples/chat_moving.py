"""A chat that continues while one side changes its address: the session stays and its addresses follow.

Each message is retransmitted to the address in the session until it is acknowledged. While no acknowledgement arrives,
the application sets the media status DISCONNECTED; SIP may still be CONNECTED. There is no broker and there are no
events. The addresses belong to the loopback network, so it needs only Linux. Run it with
``.venv/bin/python examples/chat_moving.py``.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from wanderbus.api.sip_mobility import (
    RemoteMediaStatus,
    SDPMediaDescriptionData,
    SIPMobility,
    SIPMobilityListener,
    SIPMobilityProperties,
    SIPServers,
    SIPSession,
    remote_media,
)

PASSWORDS = {"alice": "secret", "bob": "sesame"}
PLACES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
REPEAT_S = 0.05
TRIES_MAX = 100


class Phone(SIPMobilityListener):
    """One side of the chat: a UDP socket at the device's address, and numbered, acknowledged messages."""

    def __init__(self, name: str, server: str) -> None:
        self.name = name
        self.received: list[str] = []
        self._socket = self._listen("127.0.0.1")
        self._sent = 0
        self._confirmed: set[int] = set()
        self._session: SIPSession | None = None
        self._medium = self._described()
        self.mobility = SIPMobility(
            SIPMobilityProperties(
                uri=f"{name}@localhost", password=PASSWORDS[name], server=server, media=(self._medium,)
            )
        )
        self.mobility.add_listener(self)

    # Callbacks of SIPMobility

    def session_connected(self, session: SIPSession) -> None:
        """Store the session, which has the address of the other side."""
        self._session = session

    def session_changed(self, session: SIPSession) -> None:
        """Store the session after a move of either side."""
        self._session = session

    def local_ip_changed(self, address: str) -> None:
        """Listen at the new address on another port, and describe the port before the re-INVITE is sent."""
        self.hang_up()
        self._socket = self._listen(address)
        before, self._medium = self._medium, self._described()
        self.mobility.change_media_description(before, self._medium)

    # Messages

    async def say(self, words: str) -> None:
        """Return when the other side has acknowledged ``words``; ConnectionError after too many attempts."""
        self._sent += 1
        number = self._sent
        for tried in range(TRIES_MAX):
            assert self._session is not None
            self._socket.sendto(f"say {number} {words}".encode(), remote_media(self._session)[0].destination)
            await asyncio.sleep(REPEAT_S if tried else 0.01)
            reached = number in self._confirmed
            status = RemoteMediaStatus.CONNECTED if reached else RemoteMediaStatus.DISCONNECTED
            self.mobility.set_media_status(self._session.id, status)
            if reached:
                return
        raise ConnectionError(f"{self.name}: no acknowledgement")

    def hang_up(self) -> None:
        """Close the socket."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _listen(self, address: str) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setblocking(False)
        opened.bind((address, 0))
        asyncio.get_running_loop().add_reader(opened, self._received)
        return opened

    def _described(self) -> SDPMediaDescriptionData:
        return SDPMediaDescriptionData(self._socket.getsockname()[1])

    def _received(self) -> None:
        try:
            data, source = self._socket.recvfrom(2048)
        except OSError:
            return  # the other side has left the address
        kind, number, words = (data.decode() + "  ").split(" ", 2)
        if kind == "got":
            self._confirmed.add(int(number))
            return
        self._socket.sendto(f"got {number}".encode(), source)
        if int(number) > len(self.received):
            self.received.append(words.strip())


async def talk(alice: Phone, bob: Phone) -> None:
    """Let alice call bob and change her address while they talk."""
    session = await alice.mobility.create_session("sip:bob@localhost")
    await bob.say("Where are you, Alice?")
    await alice.say("At home, about to leave.")
    for place in PLACES:
        await alice.mobility.rebind(place)
        await bob.say("And now?")
        await alice.say(f"At {place}.")
        print(f"alice received {alice.received[-1]!r} and bob {bob.received[-1]!r}")
    same = list(alice.mobility.sessions) == list(bob.mobility.sessions) == [session.id]
    print("still the same session" if same else "the session was lost")
    await alice.mobility.terminate_session(session.id)


async def main() -> int:
    """Start the SIP servers and both users; return the exit status."""
    async with SIPServers("localhost", PASSWORDS, port=0) as servers:
        alice, bob = (Phone(name, servers.place) for name in PASSWORDS)
        async with alice.mobility, bob.mobility:
            await bob.mobility.register()
            await alice.mobility.register()
            await talk(alice, bob)
        for phone in (alice, bob):
            phone.hang_up()
    print(f"{len(alice.received) + len(bob.received)} messages delivered, each once")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
