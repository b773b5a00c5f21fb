"""Lightweight client beside paho-mqtt with QoS 1 at mosquitto, both over TLS: bytes on the wire, and memory.

One process publishes events one by one, waits until each is acknowledged, and receives and acknowledges it. Bytes on
the wire are what passes a TCP proxy before the server, in both directions, from the first event to the last; memory is
the resident set of the process at its end. The event has the content of a departure, for MQTT as JSON; `small` is
a small one.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.broker_mqtt import Mosquitto
from bench.sections import Measured
from harness.ports import free_port
from harness.reporting import goal
from wanderbus.lightweight.one_file import one_file
from wanderbus.runtime.net.certificate import own_certificate
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python
from wanderbus.testbed.processes import Process

HOST: Final = "127.0.0.1"
RUN_S_MAX: Final = 120.0

FLIGHT: Final[Mapping[str, Any]] = {
    **{"Carrier": "UA", "Flight": 1545, "TailNum": "N14228", "Origin": "EWR", "Dest": "IAH", "Distance": 1400},
    **{"DepTime": 517, "SchedDepTime": 515, "DepDelay": 2.0, "AirTime": 227.0, "Gate": "C24", "Status": "departed"},
}
SMALL: Final[Mapping[str, Any]] = {"Price": 24.5}

OURS: Final = """
import json, sys
from light import Client

port, count, attributes = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
with Client("127.0.0.1", port, "alice", "secret", device="bench") as client:
    client.subscribe("Departure")

    def once():
        client.publish("Departure", attributes)
        assert client.receive(30) is not None
        client.ack()
"""

PAHO: Final = """
import json, queue, ssl, sys
import paho.mqtt.client as mqtt

port, count, attributes = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="bench", protocol=mqtt.MQTTv5)
client.tls_set(cert_reqs=ssl.CERT_NONE)
client.tls_insecure_set(True)
arrived, ready = queue.Queue(), queue.Queue()
client.on_message = lambda *given: arrived.put(given)
client.on_connect = lambda *given: client.subscribe("Departure", qos=1)
client.on_subscribe = lambda *given: ready.put(given)
client.connect("127.0.0.1", port)
client.loop_start()
ready.get(timeout=30)
if True:
    def once():
        client.publish("Departure", json.dumps(attributes, separators=(",", ":")), 1).wait_for_publish()
        arrived.get(timeout=30)
"""

BEGIN: Final = """
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
"""

LOOP: Final = """
    once()
    print("ready", flush=True)
    signal.sigwait([signal.SIGUSR1])
    for _ in range(count):
        once()
    status = open("/proc/self/status").read()
    print(status.split("VmRSS:")[1].split()[0], flush=True)
"""


class Figures(msgspec.Struct):
    """Figures of one client."""

    rss_kib: int
    bytes_per_event: float


class Wire:
    """TCP proxy before a server; it counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self._port = port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no further connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._port))
                for source, target in ((client, server), (server, client)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self.bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def our_server(directory: Path) -> Iterator[int]:
    """Run a server for the block; yield its port for lightweight clients."""
    users = directory / "users"
    users.touch(0o600)
    users.write_text("alice:secret\n", encoding="utf-8")
    up = ["up", "--users", str(users), "--data-dir", str(directory / "data"), "--port", "0", "--light", "0"]
    with Process("the server", python("wanderbus", *up), directory / "server.log", read=True) as server:
        ready = re.search(r"light://\S+:(\d+)", server.line())
        assert ready is not None
        yield int(ready[1])


@contextlib.contextmanager
def mosquitto(directory: Path) -> Iterator[int]:
    """Run mosquitto over TLS for the block; yield its port."""
    program = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    port, file = free_port(), directory / "mosquitto.conf"
    certificate = own_certificate(directory).file
    lines = [f"listener {port} {HOST}", f"certfile {certificate}", f"keyfile {certificate}", "allow_anonymous true"]
    file.write_text("\n".join([*lines, "user root", "set_tcp_nodelay true", ""]), encoding="utf-8")

    def is_open() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return True
        return False

    with Process("mosquitto", [program or "", "-c", str(file)], directory / "mosquitto.log") as server:
        server.wait_until(is_open)
        yield port


def figures(program: str, port: int, directory: Path, events: int, attributes: Mapping[str, Any]) -> Figures:
    """Return the figures of a client for so many events."""
    (directory / "client.py").write_text(BEGIN + program + LOOP, encoding="utf-8")
    wire = Wire(port)
    command = [sys.executable, "client.py", str(wire.port), str(events), json.dumps(attributes)]
    with Process("the client", command, directory / "client.log", read=True, cwd=directory) as client:
        client.line()
        before = wire.bytes
        client.send_signal(signal.SIGUSR1)
        found = Figures(int(client.line(RUN_S_MAX)), (wire.bytes - before) / events)
    wire.close()
    return found


def lightweight(events: int) -> Measured:
    """Measure the lightweight client beside paho-mqtt."""
    if not Mosquitto().available():
        raise CannotRunError("mosquitto is not installed")
    found: dict[str, list[Figures]] = {}
    for name, server, program in (("lightweight", our_server, OURS), ("paho_qos1", mosquitto, PAHO)):
        with tempfile.TemporaryDirectory() as temporary, server(Path(temporary)) as port:
            (Path(temporary) / "light.py").write_text(one_file(), encoding="utf-8")
            found[name] = [figures(program, port, Path(temporary), events, each) for each in (FLIGHT, SMALL)]
    results = [
        {
            "client": name,
            "rss_kib": flight.rss_kib,
            "bytes_per_event": flight.bytes_per_event,
            "small": small.bytes_per_event,
        }
        for name, (flight, small) in found.items()
    ]
    ours, theirs = found["lightweight"][0], found["paho_qos1"][0]
    bytes_ratio = ours.bytes_per_event / theirs.bytes_per_event
    return results, [
        goal("lightweight_rss_vs_paho", ours.rss_kib / theirs.rss_kib, "ratio", most=1.0),
        goal("lightweight_bytes_per_event_vs_paho_qos1", bytes_ratio, "ratio", most=1.2),
    ]
