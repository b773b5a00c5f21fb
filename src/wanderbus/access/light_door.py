"""Door for lightweight clients: connections over TLS, whose messages are the broker's own (SPEC P-02).

::

    streams ──frames──▶ LightDoor ──LinkOpened, MessageArrived, LinkClosed──▶ broker
            ◀──frames──           ◀──SendOnLink, LinkDropped, Consumed──────

A client logs in as a user of the users file: both sides prove that they know HA1, for a nonce and for the certificate
of this connection. So nobody between the two can log in as the user, or pass for the server, and no password is sent.
After that the client attaches to a session of the broker, and speaks as an agent does. A reconnection costs nothing:
the broker's own numbers make it exact.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Callable, Iterable
from typing import Final

from wanderbus.access import light_frames as wire
from wanderbus.access.light_connection import LightConnection
from wanderbus.access.light_messages import LIGHT_SOCKET, Hello, LightInput, LightOutput, LinkWanted
from wanderbus.broker.messages import DevicesDoubted, LinkClosed, LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.errors import RemoteProtocolError
from wanderbus.hosts import network_of
from wanderbus.machine import (
    Address,
    CloseStream,
    RandomSource,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.parameters.transports import LIGHT_LIMITS, LightLimits
from wanderbus.peers.owner_messages import CallPostponed, CallRedirected, CallRefused, CallServed
from wanderbus.peers.server_traffic import FIRST_LINK
from wanderbus.refusals import FREE_FAILURES, Limited, LoginRefused
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.sip.authentication.verdicts import SOURCE_FAILURES, RequestSource
from wanderbus.tcp.interface import TcpTarget
from wanderbus.tokens import TokenBucket
from wanderbus.transport import Consumed

FIRST_LIGHT_LINK: Final = 2**47
"""Number of the first link of the broker to a lightweight client; sessions of SIP have lower ones, servers higher."""

CALL_PREFIX: Final = "light:"
"""Beginning of the names under which the owner of a session is looked up for a client."""

WATCH_S: Final = 1.0
"""Pause between two checks of the connections for those that were silent for too long."""

ENDING_S: Final = 5.0
"""Time that a refused client has to read the reason, before its connection is closed."""

ANSWER_S: Final = 15.75
"""Time to answer a PING, as that of the acknowledgements of other data channels."""

BURST: Final = 20.0
"""Logins of one user at once, as the burst of new SIP sessions."""

USERS_MAX: Final = 1_024
"""Users beyond which those are forgotten that have not logged in for long."""


def is_light(link: int) -> bool:
    """Return whether a link of the broker is one to a lightweight client."""
    return FIRST_LIGHT_LINK <= link < FIRST_LINK


class LightDoor:
    """Connections of lightweight clients.

    :param realm: the SIP domain, whose users may log in
    :param secret_of: returns HA1 under SHA-256 of a user's name, None for an unknown one
    :param fingerprint: SHA-256 of the certificate that clients see
    :param message_bytes_max: length of a message of a client
    :param user_logins_per_s: pace of each user's logins, after the first ones
    :param asks_owner: whether another server of the domain may own the session of a client
    """

    def __init__(
        self,
        random: RandomSource,
        realm: str,
        secret_of: Callable[[str], str | None],
        *,
        fingerprint: bytes,
        message_bytes_max: int,
        guard: LoginGuard | None = None,
        limits: LightLimits = LIGHT_LIMITS,
        user_logins_per_s: float = 2.0,
        asks_owner: bool = False,
    ) -> None:
        self.malformed = 0
        """Connections that were closed because of a malformed or forbidden frame."""
        self._random = random
        self._realm = realm
        self._secret_of = secret_of
        self._fingerprint = fingerprint
        self._message_bytes_max = message_bytes_max
        self._guard = LoginGuard() if guard is None else guard
        self._limits = limits
        self._user_logins_per_s = user_logins_per_s
        self._asks_owner = asks_owner
        self._connections: dict[int, LightConnection] = {}
        self._by_device: dict[tuple[str, str], LightConnection] = {}
        self._strangers: dict[int, LightConnection] = {}
        """Connections without a login, the oldest first."""
        self._paces: dict[str, TokenBucket] = {}
        self._outputs: list[LightOutput] = []
        self._pieces: dict[int, tuple[int, Address, list[bytes]]] = {}
        """Frames of this step by connection, which leave as one packet: the place among the outputs, and to whom."""
        self._is_watching = False

    def __len__(self) -> int:
        return len(self._connections)

    def step(self, inputs: Iterable[LightInput], now: float) -> list[LightOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case StreamReceived():
                    self._on_received(given, now)
                case SendOnLink(link=link, payload=payload):
                    self._on_send(link, payload, now)
                case Consumed(local_id=link, messages=messages):
                    if (connection := self._of_link(link)) is not None:
                        self._send(connection, connection.consumed(messages, self._limits.window_bytes))
                case StreamClosed(connection=number, reason=reason):
                    self._forget(number, reason)
                case LinkDropped(link=link, reason=reason):
                    if (connection := self._of_link(link)) is not None:
                        self._end(connection, wire.CLOSED, reason, now)
                case LinkClosed(link=link):
                    # The answer to a request to leave is still on its way.
                    if (connection := self._of_link(link)) is not None:
                        connection.ends_at = now + ENDING_S
                case DevicesDoubted(user=user):
                    self._doubt(user, now)
                case TimerFired():
                    self._watch(now)
                case CallServed() | CallRedirected() | CallPostponed() | CallRefused():
                    self._on_decided(given, now)
        outputs, self._outputs = self._outputs, []
        pieces, self._pieces = self._pieces, {}
        for number, (place, source, several) in pieces.items():
            target = TcpTarget("TLS", source)
            outputs[place] = SendOnStream(LIGHT_SOCKET, target, b"".join(several), number, reopen=False)
        return outputs

    # Frames of clients ------------------------------------------------------------------------------------------

    def _on_received(self, given: StreamReceived, now: float) -> None:
        connection = self._connections.get(given.connection)
        if connection is None:
            connection = self._accept(given.connection, given.source, now)
        if connection.is_ending():
            return
        connection.heard_at, connection.doubted_at = now, None
        try:
            for kind, body in connection.reader.frames(given.data):
                self._on_frame(connection, kind, body, now)
                if connection.is_ending():
                    return
        except RemoteProtocolError as error:
            self.malformed += 1
            self._end(connection, wire.CLOSED, str(error), now)

    def _accept(self, number: int, source: Address, now: float) -> LightConnection:
        """Add a connection; at the bound, the oldest one without a login gives way."""
        if len(self._strangers) >= self._limits.logins_max:
            oldest = next(iter(self._strangers.values()))
            self._limited("logins_max", oldest, "connection without a login closed to admit another")
            self._close(oldest, "closed to admit another connection")
        connection = LightConnection(number, source, self._random.token(wire.NONCE_BYTES), now)
        self._connections[number] = self._strangers[number] = connection
        if not self._is_watching:
            self._is_watching = True
            self._outputs.append(SetTimer("watch", now + WATCH_S))
        return connection

    def _on_frame(self, connection: LightConnection, kind: int, body: bytes, now: float) -> None:
        if connection.hello is None and kind == wire.HELLO:
            connection.hello = wire.decode_hello(body)
            self._send(connection, wire.encode_challenge(connection.nonce, self._realm))
        elif connection.hello is not None and not connection.has_proved and kind == wire.PROOF:
            self._on_proof(connection, connection.hello, body, now)
        elif connection.link and kind == wire.MESSAGE:
            connection.received(body)
            self._outputs.append(MessageArrived(connection.link, body))
        elif connection.link and kind == wire.GRANT:
            self._send(connection, connection.granted(int.from_bytes(body, "big")))
        elif connection.link and kind == wire.PING:
            self._send(connection, wire.encode(wire.PONG))
        elif not (connection.link and kind == wire.PONG):
            raise RemoteProtocolError(f"frame type {kind:#04x} must not come here", status=None)

    def _on_proof(self, connection: LightConnection, hello: Hello, proof: bytes, now: float) -> None:
        name, host = hello.user, network_of(connection.source[0])
        source, user = RequestSource(host, host), f"sip:{name}@{self._realm}"
        wait_s, limit = self._guard.wait(name, source, now)
        if wait_s > 0:
            count = self._guard.refused(name, source, now)
            self._refuse_login(connection, user, "Too Many Failed Logins", count, limit)
            self._end(connection, wire.LATER, "too many failed logins", now, wait_s)
            return
        secret = self._secret_of(name)
        signed = connection.nonce, self._fingerprint, hello.body
        is_right = hmac.compare_digest(wire.client_proof(secret or "", *signed), proof)
        if secret is None or not is_right or not hello.device:
            count = self._guard.failed(name, source, now)
            self._refuse_login(connection, user, "Wrong User Or Password", count, FREE_FAILURES)
            self._end(connection, wire.WRONG, "wrong user or password", now)
            return
        self._guard.accepted(name, source, now)
        tokens = self._pace(user, now)
        if not tokens.take(now):
            self._outputs.append(Limited("broker.user_connects_per_s", user, "refused"))
            self._end(connection, wire.LATER, "too many logins of this user", now, tokens.wait_s(now))
            return
        del self._strangers[connection.number]
        connection.has_proved, connection.user = True, user
        if self._asks_owner:
            call = f"{CALL_PREFIX}{connection.number}"
            self._outputs.append(LinkWanted(call, user, hello.session, hello.former))
        else:
            self._open(connection, now)

    def _on_decided(self, decision: CallServed | CallRedirected | CallPostponed | CallRefused, now: float) -> None:
        """Serve a client whose session's owner was looked up, or refuse it."""
        connection = self._connections.get(int(decision.call.removeprefix(CALL_PREFIX)))
        if connection is None or connection.is_ending() or connection.link:
            return
        match decision:
            case CallServed():
                self._open(connection, now)
            case CallRedirected(contacts=contacts):
                self._end(connection, wire.MOVED, contacts[0] if contacts else "", now)
            case CallPostponed(former=former):
                self._end(connection, wire.LATER, f"{former} cannot be reached", now, 1.0)
            case CallRefused(reason=reason):
                self._end(connection, wire.LATER, reason, now, 1.0)

    def _open(self, connection: LightConnection, now: float) -> None:
        """Open the broker's link; an earlier connection of the same device is over."""
        hello, limits = connection.hello, self._limits
        assert hello is not None
        device = connection.user, hello.device
        if (former := self._by_device.get(device)) is not None:
            self._end(former, wire.CLOSED, "the device has opened another connection", now)
        self._by_device[device] = connection
        connection.reader.message_bytes_max = self._message_bytes_max
        connection.link = FIRST_LIGHT_LINK + connection.number
        grant = connection.open_windows(limits.window_bytes, hello.window_bytes)
        proof = wire.server_proof(self._secret_of(hello.user) or "", connection.nonce, self._fingerprint, hello.body)
        self._send(connection, wire.encode_welcome(proof, grant, self._message_bytes_max, int(limits.heard_s_max / 2)))
        self._outputs.append(LinkOpened(connection.link, *device))

    # Messages of the broker -------------------------------------------------------------------------------------

    def _of_link(self, link: int) -> LightConnection | None:
        connection = self._connections.get(link - FIRST_LIGHT_LINK)
        return connection if connection is not None and connection.link else None

    def _on_send(self, link: int, payload: bytes, now: float) -> None:
        if (connection := self._of_link(link)) is None:
            return
        self._send(connection, connection.send(payload))
        if connection.held_bytes > self._limits.held_bytes_max:
            self._limited("held_bytes_max", connection, "connection closed: the client does not read")
            self._end(connection, wire.CLOSED, "the client does not read", now)

    def _doubt(self, user: str, now: float) -> None:
        """Ask the clients of a user whether they are still there; silent ones give way to another device."""
        for connection in self._by_device.values():
            if connection.user == user and connection.doubted_at is None:
                connection.doubted_at = now
                self._send(connection, wire.encode(wire.PING))

    def _send(self, connection: LightConnection, data: bytes) -> None:
        if data:
            place = self._pieces.get(connection.number)
            if place is None:
                place = self._pieces[connection.number] = len(self._outputs), connection.source, []
                self._outputs.append(CloseStream(LIGHT_SOCKET, connection.number))
            place[2].append(data)

    # Ends of connections ----------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Close what was silent for too long, or was refused a while ago."""
        limits = self._limits
        for connection in list(self._connections.values()):
            if connection.ends_at is not None:
                if now >= connection.ends_at:
                    self._close(connection, "refused")
            elif not connection.link:
                if now >= connection.opened_at + limits.login_s_max:
                    self._limited("login_s_max", connection, "connection without a login closed")
                    self._close(connection, "no login in time")
            elif now >= connection.heard_at + limits.heard_s_max:
                self._limited("heard_s_max", connection, "silent connection closed")
                self._close(connection, "the client is silent")
            elif connection.doubted_at is not None and now >= connection.doubted_at + ANSWER_S:
                self._close(connection, "the client does not answer")
        self._is_watching = bool(self._connections)
        if self._is_watching:
            self._outputs.append(SetTimer("watch", now + WATCH_S))

    def _end(self, connection: LightConnection, code: int, reason: str, now: float, wait_s: float = 0.0) -> None:
        """Refuse a client: it reads the reason, and closes the connection."""
        if connection.ends_at is None:
            connection.ends_at = now + ENDING_S
            self._send(connection, wire.encode_refused(code, reason, math.ceil(wait_s)))
            self._close_link(connection, reason)

    def _close(self, connection: LightConnection, reason: str) -> None:
        """Close a connection at once."""
        self._outputs.append(CloseStream(LIGHT_SOCKET, connection.number))
        self._forget(connection.number, reason)

    def _forget(self, number: int, reason: str) -> None:
        self._strangers.pop(number, None)
        if (connection := self._connections.pop(number, None)) is not None:
            self._close_link(connection, reason)

    def _close_link(self, connection: LightConnection, reason: str) -> None:
        link, connection.link = connection.link, 0
        connection.held.clear()
        if connection.hello is not None:
            device = connection.user, connection.hello.device
            if self._by_device.get(device) is connection:
                del self._by_device[device]
        if link:
            self._outputs.append(LinkClosed(link, reason))

    def _pace(self, user: str, now: float) -> TokenBucket:
        if user not in self._paces and len(self._paces) >= USERS_MAX:
            self._paces = {each: tokens for each, tokens in self._paces.items() if not tokens.is_full(now)}
        return self._paces.setdefault(user, TokenBucket(self._user_logins_per_s, BURST))

    def _refuse_login(self, connection: LightConnection, user: str, reason: str, count: int, limit: str) -> None:
        host = network_of(connection.source[0])
        shown = user.encode("unicode_escape").decode().replace(" ", "%20")
        by_source = host if limit == SOURCE_FAILURES else None
        self._outputs.append(LoginRefused(shown, reason, host, count, limit, by_source))

    def _limited(self, setting: str, connection: LightConnection, reason: str) -> None:
        host = network_of(connection.source[0])
        self._outputs.append(Limited(f"{self._limits.section}.{setting}", host, reason))
