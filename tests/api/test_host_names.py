"""Host names in place of addresses: no lookup blocks the server."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.api.world import SUBJECT, World, numbers, publish, run
from wanderbus.errors import WanderbusError
from wanderbus.hosts import is_ip_address
from wanderbus.runtime.net.driver import Driver
from wanderbus.sip.message.sdp import SessionDescription

HOST = "some.name.invalid"


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Names that were looked up in the system while a driver ran, in C or in Python."""
    names: list[Any] = []
    sendto, ask = socket.socket.sendto, socket.getaddrinfo

    def sending(sender: socket.socket, data: bytes, destination: Any) -> int:
        if not is_ip_address(destination[0]):
            names.append(destination)
            return len(data)
        return sendto(sender, data, destination)

    def asking(host: Any, *question: Any, **options: Any) -> Any:
        if not is_ip_address(str(host)):
            names.append(host)
        return ask(host, *question, **options)

    monkeypatch.setattr(socket.socket, "sendto", sending)
    monkeypatch.setattr(socket, "getaddrinfo", asking)
    return names


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_user_at_a_name_is_refused_and_holds_nobody_up(
    world: World, looked_up: list[Any], monkeypatch: pytest.MonkeyPatch, transport: str
) -> None:
    """The MAC of a description does not cover addresses, so any user can write a name there."""
    encode = SessionDescription.encode

    def encoding(described: SessionDescription) -> bytes:
        text = encode(described)
        return text.replace(b"127.0.0.1", HOST.encode()) if described.username == "bob" else text

    monkeypatch.setattr(SessionDescription, "encode", encoding)

    async def story() -> None:
        async with world.server(), world.agent("alice") as alice:
            with pytest.raises(WanderbusError, match="Not Acceptable"):
                async with world.agent("bob", data_transport=transport, connect_s_max=2.0):
                    pass
            async with alice.subscribe(SUBJECT) as flights:
                await publish(alice, 1)
                assert await numbers(flights, 1) == [1]

    run(story())
    assert looked_up == []


def test_an_agent_names_its_server_by_host_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is looked up once, before the driver runs."""
    sent: list[str] = []
    send = Driver._send

    def sending(driver: Driver, wanted: Any) -> None:
        sent.append(wanted.destination[0])
        send(driver, wanted)

    monkeypatch.setattr(Driver, "_send", sending)

    async def story() -> None:
        async with (
            world.server(),
            world.agent("alice", server=f"localhost:{world.port}") as alice,
            alice.subscribe(SUBJECT) as flights,
        ):
            await publish(alice, 1)
            assert await numbers(flights, 1) == [1]

    run(story())
    assert all(map(is_ip_address, sent))
    assert sent
