"""A broker that is a user agent at somebody else's SIP server, and agents that find it there (SPEC C-20, X9)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import wanderbus
from tests.certificates import Certificates
from tests.interop.kamailio import Kamailio
from wanderbus.datachannel import DATA_SOCKET, STREAM_SOCKET
from wanderbus.machine import SendDatagram, SendOnStream
from wanderbus.runtime.net.driver import Driver

DOMAIN = "localhost"
AGENTS = {"alice": "secret", "bob": "hunter2", "carol": "sesame"}
USERS = AGENTS | {"broker": "the broker's own"}


class Home:
    """Directory for the files of a test's broker and agents, and their SIP server: all use one transport.

    ``options`` apply to all of them.
    """

    def __init__(
        self,
        directory: Path,
        server: Kamailio,
        transport: str = "UDP",
        certificates: Certificates | None = None,
        **options: Any,
    ) -> None:
        self._directory = directory
        self._options = options
        self._place = f"{server.address}:{server.port_for(transport)}"
        self._transport = transport.lower()
        self._authority = certificates.authority if certificates and transport == "TLS" else None

    @contextlib.asynccontextmanager
    async def broker(self, **options: Any) -> AsyncIterator[wanderbus.Server]:
        """Run the broker; started again, it finds its log."""
        settings: dict[str, Any] = {
            "domain": DOMAIN,
            "data_dir": self._directory / "broker",
            "users": AGENTS,
            "sip_server": f"sip:{self._place};transport={self._transport}",
            "broker_password": USERS["broker"],
            "ca_file": self._authority,
            **self._options,
        }
        async with wanderbus.Server(**(settings | options)) as server:
            yield server

    def agent(self, user: str, **options: Any) -> wanderbus.Agent:
        """Return an agent that begins at 127.0.0.1."""
        settings: dict[str, Any] = {
            "password": USERS[user],
            "server": self._place,
            "transport": self._transport,
            "ca_file": self._authority,
            "state_dir": self._directory / user,
            "local_address": "127.0.0.1",
            **self._options,
        }
        return wanderbus.connect(f"sip:{user}@{DOMAIN}", **(settings | options))


class Sent:
    """Counters of the data channel bytes and datagrams that this process has sent."""

    def __init__(self) -> None:
        self.datagrams = 0
        self.bytes = 0
        self.ports: set[int] = set()
        """To which ports."""

    def add(self, wanted: SendDatagram | SendOnStream) -> None:
        """Count a datagram or a piece of a stream."""
        if wanted.socket in (DATA_SOCKET, STREAM_SOCKET):
            address = wanted.destination if isinstance(wanted, SendDatagram) else wanted.target.address
            self.datagrams += 1
            self.bytes += len(wanted.data)
            self.ports.add(address[1])


@contextlib.contextmanager
def counting_data() -> Iterator[Sent]:
    """Count the data that all agents and servers of this process send in the block."""
    sent = Sent()
    send, send_on_stream = Driver._send, Driver._send_on_stream

    def counted(driver: Driver, wanted: SendDatagram) -> None:
        sent.add(wanted)
        send(driver, wanted)

    def counted_on_stream(driver: Driver, wanted: SendOnStream) -> None:
        sent.add(wanted)
        send_on_stream(driver, wanted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Driver, "_send", counted)
        patch.setattr(Driver, "_send_on_stream", counted_on_stream)
        yield sent
