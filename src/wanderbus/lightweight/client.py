"""Lightweight client on a blocking socket."""

import hashlib
import os
import socket
import ssl
import time

from wanderbus.lightweight.core import Core
from wanderbus.lightweight.messagepack import LightError
from wanderbus.lightweight.records import LOGIN_S_MAX, Item

try:
    from typing import Any
except ImportError:  # MicroPython
    Any = object  # type: ignore[assignment,misc]


class Client:
    """The client on a blocking socket; a context manager, for one thread.

    It connects with its first request, and again after every loss, with growing pauses. Both sides prove that they
    know the password, for the certificate of the connection, so the server's own certificate needs no authority.

    :param fingerprint: SHA-256 of the certificate that the server has to show, in hexadecimal; "" for any
    :param servers: address (host, port) of the doors of the domain's other servers, by the host of their SIP URIs
    :param timeout_s: time for a request and its answer, with all reconnections
    :param options: more parameters of :class:`Core`
    """

    def __init__(
        self,
        host: str,
        port: int,
        user: str,
        password: str,
        device: str,
        state: bytes = b"",
        fingerprint: str = "",
        servers: dict[str, tuple[str, int]] | None = None,
        timeout_s: float = 30.0,
        **options: Any,
    ) -> None:
        self.address = host, port
        self.timeout_s = timeout_s
        self.core = Core(user, password, device, os.urandom, state=state, **options)
        self.reports: list[tuple[Any, ...]] = []
        """Reports that nobody has asked for: ended subscriptions, moves, waits; the newest 100."""
        self._answers: dict[tuple[str, int], tuple[Any, ...]] = {}
        self._fingerprint = fingerprint.lower().replace(":", "")
        self._servers = servers or {}
        self._socket: Any = None
        self._fatal = ""
        self._now = time.monotonic
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The proofs of the login cover the certificate, whoever has signed it.
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> "Client":
        return self

    def __next__(self) -> Item:
        while True:
            if (item := self.receive(60.0)) is not None:
                return item

    @property
    def state(self) -> bytes:
        """The state to store with the results of the work, before :meth:`ack`."""
        return self.core.state

    def publish(self, subject: str, attributes: dict[str, Any], wait: bool = True) -> int:
        """Publish an event; return its ticket once the event is durable at the server, or at once without ``wait``.

        Without an answer in time it raises ``LightError``, and the event is still sent later.
        """
        if not self.core.has_room:
            self._work(lambda: self.core.has_room)
        ticket = self.core.publish(subject, attributes, int(time.time() * 1e6), self._now())
        self._perform()
        if wait:
            self._answer("published", ticket)
        return ticket

    def flush(self) -> None:
        """Wait until every published event has its answer."""
        self._work(lambda: not self.core.unanswered)

    def subscribe(self, subject: str, expression: str = "", **options: Any) -> str:
        """Subscribe and read; return the id of the subscription. ``options`` are those of :meth:`Core.subscribe`."""
        subscriptions = self._answer("answer", self.core.subscribe(subject, expression, self._now(), **options))
        return str(subscriptions[2][0]["id"])

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription."""
        self._answer("answer", self.core.unsubscribe(subscription, self._now()))

    def renew(self, subscription: str, lifetime_s: float | None) -> None:
        """Let a subscription end ``lifetime_s`` from now, or never."""
        self._answer("answer", self.core.renew(subscription, lifetime_s, self._now()))

    def restrict(self, subscription: str, *restrictions: dict[str, Any]) -> None:
        """Replace the restrictions of a subscription."""
        self._answer("answer", self.core.restrict(subscription, restrictions, self._now()))

    def subscriptions(self) -> list[dict[str, Any]]:
        """Return the subscriptions of the session."""
        return list(self._answer("answer", self.core.query(self._now()))[2])

    def receive(self, timeout_s: float = 0.0) -> Item | None:
        """Return the next item, None if none arrives in time; :meth:`ack` acknowledges what was returned."""
        end = self._now() + timeout_s
        while (item := self.core.next_item(self._now())) is None:
            if self._turn(end) and self._now() >= end:
                return None
        return item

    def ack(self) -> None:
        """Acknowledge every item that :meth:`receive` has returned.

        That leaves with the next packet, or once :meth:`receive` waits; without it, :attr:`state` has the position.
        """
        self.core.ack(self._now())

    def moved(self) -> None:
        """Connect again at once: the device has another address, or another network."""
        self._disconnect()
        self.core.connect_at = 0.0

    def leave(self) -> None:
        """Leave the session for good, and close."""
        self._answer("answer", self.core.leave(self._now()))
        self.close()

    def close(self) -> None:
        """Close the connection; the session waits for the next life of this device."""
        if self._socket is not None:
            self._perform()
            self._disconnect()

    def _answer(self, kind: str, number: int) -> tuple[Any, ...]:
        self._work(lambda: (kind, number) in self._answers)
        answer = self._answers.pop((kind, number))
        if answer[0] == "refused" or (kind == "answer" and answer[2] is None):
            raise LightError(answer[2] or answer[3])
        return answer

    def _work(self, is_done: Any) -> None:
        """Send and receive until ``is_done``; ``LightError`` after the timeout."""
        end = self._now() + self.timeout_s
        self._perform()
        while not is_done():
            if self._now() >= end:
                raise LightError(f"no answer from {self.address[0]}:{self.address[1]} in {self.timeout_s:g} s")
            self._turn(end)

    def _turn(self, end: float) -> bool:
        """Connect, receive or wait, once and not beyond ``end``; return whether nothing arrived."""
        self._perform()
        now = self._now()
        if self._socket is None:
            self._connect(now, end)
            return self._socket is None
        due = end if self.core.deadline is None else min(end, self.core.deadline)
        data: bytes | None = b""
        try:
            self._socket.settimeout(max(0.001, due - now))
            data = self._socket.recv(16_384)
        except TimeoutError:
            data = None
        except OSError:
            pass
        if data:
            self.core.data(data, self._now())
        elif data is not None:
            self._disconnect()
        self.core.tick(self._now())
        self._perform()
        return data is None

    def _connect(self, now: float, end: float) -> None:
        """Open a connection, or wait until that may be tried."""
        if self._fatal:
            raise LightError(self._fatal)
        if self.core.connect_at > now:
            time.sleep(min(self.core.connect_at, max(end, now + 0.001)) - now)
            return
        try:
            opened = socket.create_connection(self.address, timeout=LOGIN_S_MAX)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._tls.wrap_socket(opened)
        except OSError:
            self.core.closed(self._now())
            return
        digest = hashlib.sha256(self._socket.getpeercert(True) or b"").digest()
        if self._fingerprint and digest.hex() != self._fingerprint:
            self._disconnect()
            raise LightError(f"the server shows the certificate {digest.hex()}, not the given one")
        self.core.opened(digest, self._now())
        self._perform()

    def _perform(self) -> None:
        """Perform the outputs of the core: what it sends leaves as one packet."""
        out = self.core.take()
        data = b"".join([each[1] for each in out if each[0] == "send"])
        if data and self._socket is not None:
            try:
                self._socket.settimeout(LOGIN_S_MAX)
                self._socket.sendall(data)
            except OSError:
                self._disconnect()
        for each in out:
            kind = each[0]
            if kind == "close":
                self._disconnect()
            elif kind == "fatal":
                self._fatal = each[1]
            elif kind in ("published", "refused", "answer"):
                self._keep_answer(each)
            elif kind == "moved" and self._server_of(each[1]) is not None:
                self.address = self._server_of(each[1]) or self.address
            elif kind != "send":
                self.reports = [*self.reports[-99:], each]

    def _keep_answer(self, answer: tuple[Any, ...]) -> None:
        """Keep an answer until it is asked for; the oldest of many is dropped, or reported if it is a refusal."""
        self._answers["answer" if answer[0] == "answer" else "published", answer[1]] = answer
        if answer[0] == "refused":
            self.reports = [*self.reports[-99:], answer]
        if len(self._answers) > 100:
            del self._answers[next(iter(self._answers))]

    def _server_of(self, uri: str) -> tuple[str, int] | None:
        """Return the door of the server with this SIP URI, None if it is not known."""
        host = uri.split("@")[-1].split(";")[0].replace("sip:", "").replace("sips:", "")
        return self._servers.get(host) or self._servers.get(host.rpartition(":")[0])

    def _disconnect(self) -> None:
        if self._socket is not None:
            closing, self._socket = self._socket, None
            closing.close()
            self.core.closed(self._now())
