"""MQTT as a subject of :mod:`bench.heal`: Mosquitto, and paho-mqtt with QoS 1 and a session that outlives connections.

On a move the subscriber reconnects at once, with its client id, so that the broker drops the old connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bench.heal_jobs import OnEvent, Publisher, Subscription, pack_event, unpack_event
from harness.two_hosts import FAR_ADDRESS, Hosts
from wanderbus.testbed.namespaces import command, program
from wanderbus.testbed.processes import Process

_PORT: Final = 1883
_TOPIC: Final = "events"
_QOS: Final = 1
_CLIENT_ID: Final = "mover"
_UP_S_MAX: Final = 10.0
_START_S: Final = 0.5


class Mqtt:
    """See the module."""

    @contextlib.contextmanager
    def server(self, pair: Hosts) -> Iterator[Mapping[str, Any]]:
        """Run the broker for the block."""
        with tempfile.TemporaryDirectory(prefix="wanderbus-bench-") as directory:
            file = Path(directory) / "mosquitto.conf"
            lines = [f"listener {_PORT} {FAR_ADDRESS}", "allow_anonymous true", "user root", "log_type error"]
            lines += ["set_tcp_nodelay true", "max_inflight_messages 1000", "max_queued_messages 0"]
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            argv = command(pair.far, [program("mosquitto") or "mosquitto", "-c", str(file)])
            with Process("mosquitto", argv, Path(directory) / "errors"):
                time.sleep(_START_S)
                yield {}

    @contextlib.asynccontextmanager
    async def subscribed(self, options: Mapping[str, Any], on_event: OnEvent) -> AsyncIterator[Subscription]:
        """Subscribe for the block."""
        subscription = _Subscription(on_event)
        await subscription.moved()
        try:
            yield subscription
        finally:
            subscription.close()

    @contextlib.asynccontextmanager
    async def publishing(self, options: Mapping[str, Any]) -> AsyncIterator[Publisher]:
        """Prepare to publish for the block."""
        client, up = _client(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def connected(*_: object) -> None:
            loop.call_soon_threadsafe(up.set)

        client.on_connect = connected
        client.connect(FAR_ADDRESS, _PORT)
        client.loop_start()
        await asyncio.wait_for(up.wait(), _UP_S_MAX)
        try:
            yield _Publishing(client)
        finally:
            client.disconnect()
            client.loop_stop()


class _Subscription:
    def __init__(self, on_event: OnEvent) -> None:
        self.marks: list[tuple[str, float]] = []
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._clients: list[mqtt.Client] = []

    async def moved(self) -> None:
        """Connect and take over the session."""
        client, up = _client(_CLIENT_ID), asyncio.Event()

        def connected(*_: object) -> None:
            if not self._clients:
                client.subscribe(_TOPIC, qos=_QOS)
            self._loop.call_soon_threadsafe(up.set)

        client.on_connect = connected
        client.on_message = self._received
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3_600
        client.connect(FAR_ADDRESS, _PORT, clean_start=False, properties=properties)
        client.loop_start()
        await asyncio.wait_for(up.wait(), _UP_S_MAX)
        self.marks.append(("connected", time.monotonic()))
        for old in self._clients:
            old.loop_stop()
        self._clients = [client]

    def close(self) -> None:
        """Disconnect."""
        for client in self._clients:
            client.disconnect()
            client.loop_stop()

    def _received(self, client: object, data: object, message: mqtt.MQTTMessage) -> None:
        """Record the time, in paho's thread."""
        number, published_s = unpack_event(bytes(message.payload))
        self._loop.call_soon_threadsafe(self._on_event, number, published_s, time.monotonic())


class _Publishing:
    def __init__(self, client: mqtt.Client) -> None:
        self._client = client

    async def publish(self, number: int, published_s: float) -> None:
        """Publish one event."""
        self._client.publish(_TOPIC, pack_event(number, published_s), _QOS)


def _client(client_id: str = "") -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=mqtt.MQTTv5)
    client.max_inflight_messages_set(1_000)
    client.on_socket_open = _without_delay
    return client


def _without_delay(client: object, data: object, opened: Any) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
