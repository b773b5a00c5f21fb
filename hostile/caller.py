"""SIP client over UDP that authenticates by digest, and sends arbitrary requests of an attacker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from hostile.attack import PASSWORD, Target
from hostile.datagrams import HEADERS_BYTES
from hostile.network import ATTACKER
from wanderbus.errors import SIPParseError
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response, encode_message, parse_message

ANSWER_S_MAX: Final = 2.0
TRIES_MAX: Final = 3
DATAGRAM_BYTES_MAX: Final = 65_535


class Caller:
    """One socket of the attacker's host; ``sent_bytes`` counts with headers of UDP and IP."""

    def __init__(self, stream: socket.socket, user: str) -> None:
        self.port = int(stream.getsockname()[1])
        self.name = user
        self.sent_bytes = 0
        self._socket = stream
        self._digest = DigestClient(user, PASSWORD, SystemRandom())

    async def ask(self, target: Target, port: int, request: Request) -> Response | None:
        """Send a request, answer a challenge, and return the final response; None if there is none."""
        answer = None
        for _ in range(TRIES_MAX):
            sent = self._digest.authorize(request)
            answer = await self._once(encode_message(sent), (target.server, port), request.call_id)
            if answer is None or answer.status not in (401, 407) or not self._digest.learn(answer):
                return answer
            # A repeated request is another transaction, with the next number.
            branch, number = f"{request.via.branch}x", request.cseq.number + 1
            via = request.headers_all("Via")[0].replace(str(request.via.branch), branch)
            request = request.without("CSeq").with_header("CSeq", f"{number} {request.method}")
            request = request.without_first("Via").with_first("Via", via)
        return answer

    async def _once(self, data: bytes, place: tuple[str, int], call_id: str) -> Response | None:
        loop = asyncio.get_running_loop()
        self.sent_bytes += HEADERS_BYTES + len(data)
        self._socket.sendto(data, place)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S_MAX):
                while True:
                    received = await loop.sock_recv(self._socket, DATAGRAM_BYTES_MAX)
                    with contextlib.suppress(SIPParseError):
                        message = parse_message(received)
                        if isinstance(message, Response) and message.call_id == call_id and message.status >= 200:
                            return message
        return None


@contextlib.contextmanager
def caller(user: str, address: str = ATTACKER) -> Iterator[Caller]:
    """Provide a caller as ``user`` for the block."""
    with socket.socket(type=socket.SOCK_DGRAM) as stream:
        stream.bind((address, 0))
        stream.setblocking(False)
        yield Caller(stream, user)
