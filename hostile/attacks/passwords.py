"""Guessing of passwords."""

from __future__ import annotations

import socket
from collections.abc import Callable

from hostile.attack import DOMAIN, Attack, Report, Target
from hostile.datagrams import HEADERS_BYTES, HOLE, PADDING, request, ticks
from hostile.network import ATTACKER, SERVER
from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest_values import Challenge, Credentials
from wanderbus.sip.message.message import Response, parse_message

GUESSES_PER_S = 3_000
READ_MAX = 65_535
REFUSED_AFTER_A_LOOK = 403
"""Status for a wrong password that was compared; a guess that is refused unread gets another status."""

Ask = Callable[[int, str], bytes]
"""Return request number N with this line of credentials, which may be empty."""


class _Guesser:
    """Guesses at one port; ``admitted`` are the guesses that were compared with the password."""

    def __init__(self, target: Target, port: int, ask: Ask, uri: str, header: str) -> None:
        self.admitted: set[str] = set()
        self.sent = self.sent_bytes = 0
        self._place = target.server, port
        self._ask, self._uri, self._header = ask, uri, header
        self._challenge: Challenge | None = None
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind((ATTACKER if target.server != HOLE else HOLE, 0))
        self._socket.setblocking(False)

    def guess(self, number: int) -> None:
        """Send one guess; as long as there is no challenge to answer, request one."""
        line = "" if self._challenge is None else f"{self._header}: {self._credentials(number)}"
        datagram = self._ask(number, line)
        try:
            self._socket.sendto(datagram, self._place)
        except OSError:
            return
        self.sent += bool(line)
        self.sent_bytes += HEADERS_BYTES + len(datagram)

    def read(self) -> None:
        """Read all pending responses."""
        while True:
            try:
                data = self._socket.recv(READ_MAX)
            except OSError:
                return
            if data.startswith(b"SIP/2.0 40"):
                self._judge(data)

    def _judge(self, data: bytes) -> None:
        try:
            answer = parse_message(data)
        except SIPParseError:
            return
        if isinstance(answer, Response) and answer.status == REFUSED_AFTER_A_LOOK:
            self.admitted.add(answer.call_id)
        elif isinstance(answer, Response) and answer.status in (401, 407):
            values = [*answer.headers_all("WWW-Authenticate"), *answer.headers_all("Proxy-Authenticate")]
            self._challenge = Challenge.parse(values[0])

    def _credentials(self, number: int) -> Credentials:
        assert self._challenge is not None
        return Credentials(
            username="alice",
            realm=self._challenge.realm,
            nonce=self._challenge.nonce,
            uri=self._uri,
            response=f"{number:064x}",
            algorithm=self._challenge.algorithm,
            cnonce="1",
            nonce_count=number % 0xFFFF_FFFF + 1,
            qop="auth",
            opaque=self._challenge.opaque,
        )


def _registrations(number: int, credentials: str) -> bytes:
    lines = ["Contact: *", "Expires: 0", PADDING, *([credentials] if credentials else [])]
    return request("REGISTER", f"sip:{DOMAIN}", via=f"{ATTACKER}:9", number=number, user="alice", headers=lines)


def _calls(port: int) -> Ask:
    uri = f"sip:broker@{SERVER}:{port}"
    contact = f"Contact: <sip:alice@{ATTACKER}:9>"

    def ask(number: int, credentials: str) -> bytes:
        lines = [contact, *([credentials] if credentials else [])]
        return request("INVITE", uri, via=f"{ATTACKER}:9", number=number, user="alice", headers=lines)

    return ask


async def _guess(target: Target) -> Report:
    at_broker = f"sip:broker@{SERVER}:{target.broker_port}"
    guessers = [
        _Guesser(target, target.sip_port, _registrations, f"sip:{DOMAIN}", "Authorization"),
        _Guesser(target, target.broker_port, _calls(target.broker_port), at_broker, "Authorization"),
    ]
    number = 0
    async for count in ticks(GUESSES_PER_S, target.seconds):
        for _ in range(count):
            number += 1
            guessers[number % 2].guess(number)
        for each in guessers:
            each.read()
    report = {"sent": sum(each.sent for each in guessers), "sent_bytes": sum(each.sent_bytes for each in guessers)}
    admitted = [len(each.admitted) for each in guessers]
    return {**report, "guesses_admitted": sum(admitted), "at_registrar": admitted[0], "at_broker": admitted[1]}


ATTACKS = (
    Attack(
        "guessing",
        "8",
        "3,000 passwords/s tried for one user, at registrar and broker in turn",
        _guess,
        has_hole=True,
        # 5 at once and then after 1, 2, 4 ... s, at each of the two: docs/SECURITY.md; with some margin.
        guesses_max=24,
        quick=True,
    ),
)
