"""The proxy's side of ``ng``: commands to several relays, repeated until they are answered (SPEC I; DESIGN 6.7).

::

    driver.step([Describe(key, "offer", sdp, ...)], now)      -> [SendDatagram("ng", relay, command), SetTimer(...)]
    driver.step([DatagramReceived("ng", relay, reply)], now)  -> [CancelTimer(...), Described(key, sdp)]

A call has one relay, chosen by its Call-ID among those that answer. All commands of the call go there one after the
other, because a repeated command may arrive late. An offer that a relay refuses or does not answer goes to the next
one. An answer or a deletion always goes to the relay of the offer, since only that relay knows the call.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.limits import UDP_PAYLOAD_BYTES_MAX
from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SendDatagram,
    SetTimer,
    TimerFired,
    shown,
)
from wanderbus.relay import ng
from wanderbus.relay.ng_client_messages import CallRelay, CommandUnderWay, RelayFound, RelayLost
from wanderbus.sip.proxy.anchoring import SOCKET, Describe, Described, Release

TRIES_MAX: Final = 4
"""Number of times that a command is sent to one relay."""

REPEAT_S: Final = (0.5, 1.0)
"""Bounds of the random pause after each of them, including the last."""

LEFT_OUT_S: Final = 30.0
"""Time that a relay which did not answer is not asked while another is available."""

COMMANDS_MAX: Final = 2_000
"""Commands that wait or are under way; an offer beyond that fails."""

DESCRIPTION_BYTES_MAX: Final = 16_384
"""Maximum size of a description. A larger datagram might be lost every time, as if the relay did not answer."""

ANSWERED_BYTES_MAX: Final = UDP_PAYLOAD_BYTES_MAX // 2
"""Maximum size of a description from a relay. With a longer one the SIP message may not fit a datagram."""

HOMES_MAX: Final = 20_000
"""Calls whose relay is remembered; the relay of an older call is computed from its Call-ID again."""

_COOKIE_BYTES: Final = 8


class RelayDriver:
    """Sends commands to the relays at ``relays``, which are instances of this relay or of rtpengine.

    Inputs are :class:`Describe` and :class:`Release`; outputs are a :class:`Described` for each of the former,
    :class:`RelayLost` and :class:`RelayFound`.
    """

    def __init__(self, relays: Sequence[Address], random: RandomSource) -> None:
        self._relays = tuple(relays)
        self._random = random
        self._queues: dict[str, deque[Describe | Release]] = {}
        """Requests by Call-ID, in order; the first one is under way."""
        self._under_way: dict[str, CommandUnderWay] = {}
        """Commands by cookie."""
        self._waiting = 0
        self._call_relays: dict[str, CallRelay] = {}
        self._lost_until: dict[Address, float] = {}

    def __len__(self) -> int:
        """Return how many commands wait or are under way."""
        return self._waiting

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``; return the outputs in order."""
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case Describe() | Release():
                    outputs += self._on_request(given, now)
                case DatagramReceived(socket=socket) if socket == SOCKET:
                    outputs += self._on_reply(given, now)
                case TimerFired(key=str(cookie)):
                    outputs += self._on_timeout(cookie, now)
        return outputs

    def _on_request(self, request: Describe | Release, now: float) -> list[Output]:
        if self._waiting >= COMMANDS_MAX:
            return _failed(request, f"too many commands wait for media relays (maximum {COMMANDS_MAX})")
        if isinstance(request, Describe) and len(request.sdp) > DESCRIPTION_BYTES_MAX:
            return _failed(request, f"the description is longer than {DESCRIPTION_BYTES_MAX} bytes")
        if max(map(len, (request.call_id, request.from_tag, request.to_tag))) > ng.NAME_CHARACTERS_MAX:
            return _failed(request, f"a Call-ID or tag is longer than {ng.NAME_CHARACTERS_MAX} characters")
        self._waiting += 1
        queue = self._queues.setdefault(request.call_id, deque())
        queue.append(request)
        return self._start_next(request.call_id, now) if len(queue) == 1 else []

    def _start_next(self, call_id: str, now: float) -> list[Output]:
        """Start the next request of a call that can be sent; fail the others before it."""
        outputs: list[Output] = []
        queue = self._queues[call_id]
        while queue:
            if relays := self._relays_for(queue[0], now):
                return outputs + self._ask(queue[0], relays, now)
            self._waiting -= 1
            outputs += _failed(queue.popleft(), "the call's media relay does not answer")
        del self._queues[call_id]
        return outputs

    def _relays_for(self, request: Describe | Release, now: float) -> list[Address]:
        """Return the relays to ask, in order: for an offer the call's own, then all that answer; else only its own."""
        ranked = sorted(self._relays, key=lambda relay: _rank(request.call_id, relay))
        call_relay = self._call_relays.get(request.call_id)
        if call_relay is not None:
            ranked = [call_relay.relay, *(relay for relay in ranked if relay != call_relay.relay)]
            if isinstance(request, Release) and request.unless_answered and call_relay.answered:
                return []
        present = [relay for relay in ranked if self._lost_until.get(relay, now) <= now]
        if not (isinstance(request, Describe) and request.kind == "offer"):
            return [relay for relay in ranked[:1] if relay in present]
        # If all are lost, try the one that has been lost for longest.
        return present or sorted(ranked, key=lambda relay: self._lost_until[relay])[:1]

    def _ask(self, request: Describe | Release, relays: list[Address], now: float) -> list[Output]:
        cookie = self._random.token(_COOKIE_BYTES).hex()
        data = ng.write_command(cookie.encode(), _fields(request))
        command = self._under_way[cookie] = CommandUnderWay(request, relays[0], relays[1:], data)
        return self._send(cookie, command, now)

    def _send(self, cookie: str, command: CommandUnderWay, now: float) -> list[Output]:
        again_at = now + self._random.uniform(*REPEAT_S)
        return [SendDatagram(SOCKET, command.relay, command.data), SetTimer(cookie, again_at)]

    def _on_reply(self, given: DatagramReceived, now: float) -> list[Output]:
        try:
            cookie, reply = ng.read_reply(given.data)
        except RemoteProtocolError:
            return []
        name = cookie.decode(errors="replace")
        command = self._under_way.get(name)
        if command is None or command.relay != given.source:
            return []
        del self._under_way[name]
        found = self._lost_until.pop(command.relay, None) is not None
        outputs: list[Output] = [CancelTimer(name), *([RelayFound(command.relay)] if found else [])]
        sdp, fault = ng.outcome(reply)
        if len(sdp) > ANSWERED_BYTES_MAX:
            sdp, fault = "", f"the description is longer than {ANSWERED_BYTES_MAX} bytes"
        if isinstance(command.request, Release):
            return [*outputs, *self._finish(command.request, now)]
        if fault or not sdp:
            return [*outputs, *self._next(command, f"{shown(command.relay)}: {fault or 'no description'}", now)]
        self._remember(command.request, command.relay)
        outputs.append(Described(command.request.key, sdp.encode(errors="surrogateescape")))
        return [*outputs, *self._finish(command.request, now)]

    def _on_timeout(self, cookie: str, now: float) -> list[Output]:
        """Repeat the command, or mark the relay as lost."""
        command = self._under_way.get(cookie)
        if command is None:
            return []
        if command.tries < TRIES_MAX:
            command.tries += 1
            return self._send(cookie, command, now)
        del self._under_way[cookie]
        known = self._lost_until.get(command.relay, now) > now
        self._lost_until[command.relay] = now + LEFT_OUT_S
        lost: list[Output] = [] if known else [RelayLost(command.relay)]
        return [*lost, *self._next(command, f"{shown(command.relay)} does not answer", now)]

    def _next(self, command: CommandUnderWay, reason: str, now: float) -> list[Output]:
        """Ask the next relay that answers, if there is one."""
        others = [relay for relay in command.others if self._lost_until.get(relay, now) <= now]
        if others:
            return self._ask(command.request, others, now)
        return [*_failed(command.request, reason), *self._finish(command.request, now)]

    def _finish(self, request: Describe | Release, now: float) -> list[Output]:
        """Remove ``request``, the first of its call, and start the next."""
        self._waiting -= 1
        self._queues[request.call_id].popleft()
        return self._start_next(request.call_id, now)

    def _remember(self, request: Describe, relay: Address) -> None:
        before = self._call_relays.pop(request.call_id, None)
        if len(self._call_relays) >= HOMES_MAX:
            del self._call_relays[next(iter(self._call_relays))]
        answered = request.kind == "answer" or (before is not None and before.answered)
        self._call_relays[request.call_id] = CallRelay(relay, answered)


def _failed(request: Describe | Release, reason: str) -> list[Output]:
    return [Described(request.key, None, reason)] if isinstance(request, Describe) else []


def _fields(request: Describe | Release) -> ng.Fields:
    if isinstance(request, Release):
        return ng.delete(call_id=request.call_id, from_tag=request.from_tag, to_tag=request.to_tag)
    return ng.describe(
        request.kind,
        request.sdp.decode(errors="surrogateescape"),
        call_id=request.call_id,
        from_tag=request.from_tag,
        to_tag=request.to_tag,
        source_ip=request.source_ip,
    )


def _rank(call_id: str, relay: Address) -> bytes:
    """Return the rank of ``relay`` for a call: each call has an order of its own, the same every time."""
    return hashlib.sha256(f"{shown(relay)} {call_id}".encode(errors="surrogateescape")).digest()
