"""Mosquitto as a subject of :mod:`bench.broker`: paho-mqtt, QoS 1, sessions that outlive connections.

Tuned as ours is by default: no Nagle, a window of 1,000, queues without a bound. An acknowledgement means that the
broker has the event in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bench.broker_peer import HOST, OnEvent, Place, Publisher, process, stamp_of, stamped
from harness.ports import free_port

_TOPIC: Final = "events"
_QOS: Final = 1
_UP_S_MAX: Final = 10.0


class Mosquitto:
    """Mosquitto with its Python client; see the module."""

    name = "mosquitto_qos1"

    def available(self) -> bool:
        """Return whether the broker is installed."""
        return _program() is not None

    @contextlib.contextmanager
    def server(self, directory: Path) -> Iterator[Place]:
        """Run the broker for the block."""
        port, file = free_port(), directory / "mosquitto.conf"
        lines = [f"listener {port} {HOST}", "allow_anonymous true", "user root", "log_type error"]
        lines += ["set_tcp_nodelay true", "max_inflight_messages 1000", "max_queued_messages 0"]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with process([_program() or "", "-c", str(file)], port, directory / "log") as place:
            yield place

    @contextlib.asynccontextmanager
    async def publishing(self, place: Place) -> AsyncIterator[Publisher]:
        """Connect a publisher."""
        client, up = _client(""), asyncio.Event()
        loop = asyncio.get_running_loop()

        def connected(*_: object) -> None:
            loop.call_soon_threadsafe(up.set)

        client.on_connect = connected
        async with _looping(client, place, up):
            yield _Publishing(client)

    @contextlib.asynccontextmanager
    async def consuming(self, place: Place, number: int, on_event: OnEvent) -> AsyncIterator[None]:
        """Connect a consumer."""
        client, up = _client(f"consumer{number}"), asyncio.Event()
        loop = asyncio.get_running_loop()

        def connected(*_: object) -> None:
            client.subscribe(_TOPIC, qos=_QOS)

        def subscribed(*_: object) -> None:
            loop.call_soon_threadsafe(up.set)

        def received(_: object, __: object, message: mqtt.MQTTMessage) -> None:
            on_event(stamp_of(bytes(message.payload)))

        client.on_connect, client.on_subscribe, client.on_message = connected, subscribed, received
        async with _looping(client, place, up):
            yield


class _Publishing:
    def __init__(self, client: mqtt.Client) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[None]] = {}

        def acknowledged(_: object, __: object, number: int, *___: object) -> None:
            self._loop.call_soon_threadsafe(self._acknowledged, number)

        client.on_publish = acknowledged

    async def publish(self) -> None:
        """Publish one event."""
        acknowledged = self._loop.create_future()
        self._waiting[self._client.publish(_TOPIC, stamped(), _QOS).mid] = acknowledged
        await acknowledged

    def _acknowledged(self, number: int) -> None:
        if waiting := self._waiting.pop(number, None):
            waiting.set_result(None)


@contextlib.asynccontextmanager
async def _looping(client: mqtt.Client, place: Place, up: asyncio.Event) -> AsyncIterator[None]:
    """Let paho's thread run for the block, which begins when ``up`` is set."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 3_600
    client.connect(HOST, place["port"], clean_start=True, properties=properties)
    client.loop_start()
    try:
        await asyncio.wait_for(up.wait(), _UP_S_MAX)
        yield
    finally:
        client.disconnect()
        client.loop_stop()


def _client(client_id: str) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(1_000)
    client.on_socket_open = _without_delay
    return client


def _without_delay(client: object, data: object, opened: Any) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _program() -> str | None:
    return shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
