"""The proxy's side of ``ng``: commands for several relays, repeated until they are answered (SPEC I; DESIGN 6.7).

::

    driver.step([Describe(key, "offer", sdp, ...)], now)         -> [SendDatagram("ng", relay, command), SetTimer(...)]
    driver.step([DatagramReceived("ng", relay, reply)], now)     -> [CancelTimer(...), Described(key, sdp)]

A call has one relay, chosen by its Call-ID among those that answer; all that is said of it is said there, one command
after the other, as a command that is repeated may arrive late. An offer that a relay refuses or leaves unanswered goes
to the next one. What began elsewhere stays so: an answer or a deletion is of no use to a relay without the offer.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

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
from wanderbus.sip.proxy.anchoring import SOCKET, Describe, Described, Release

TRIES_MAX: Final = 4
"""Times that a command is sent to one relay."""

REPEAT_S: Final = (0.5, 1.0)
"""Between two of them, at random; also after the last."""

LEFT_OUT_S: Final = 30.0
"""How long a relay that did not answer is not asked while another is there."""

COMMANDS_MAX: Final = 2_000
"""Commands that wait or are under way; an offer beyond finds no relay."""

DESCRIPTION_BYTES_MAX: Final = 16_384
"""A description; a datagram that did not arrive for its size would pass for a relay that does not answer."""

ANSWERED_BYTES_MAX: Final = UDP_PAYLOAD_BYTES_MAX // 2
"""A description as a relay gives it back. With a longer one the message that carries it may not fit a datagram."""

HOMES_MAX: Final = 20_000
"""Calls of which the relay is remembered; of an older one it is found by its Call-ID again."""

_COOKIE_BYTES: Final = 8


class RelayLost(Output, frozen=True):
    """The relay at ``address`` does not answer, and is left out for :data:`LEFT_OUT_S`."""

    address: Address


class RelayFound(Output, frozen=True):
    """The relay at ``address`` answers again."""

    address: Address


class _Command(msgspec.Struct):
    """A command under way: what was wished, which relay is asked now and which are left, and how often it was sent."""

    wish: Describe | Release
    relay: Address
    others: list[Address]
    data: bytes
    tries: int = 1


class _Home(msgspec.Struct, frozen=True):
    """The relay of a call, and whether an answer has been described there."""

    relay: Address
    answered: bool


class RelayDriver:
    """Commands the relays at ``relays``, our own or rtpengine.

    Takes :class:`Describe` and :class:`Release`; tells :class:`Described` of each of the former, :class:`RelayLost` and
    :class:`RelayFound`.
    """

    def __init__(self, relays: Sequence[Address], random: RandomSource) -> None:
        self._relays = tuple(relays)
        self._random = random
        self._lines: dict[str, deque[Describe | Release]] = {}
        """By Call-ID, what is to be said of it in turn; the first is under way."""
        self._under_way: dict[str, _Command] = {}
        """By cookie."""
        self._waiting = 0
        self._homes: dict[str, _Home] = {}
        self._lost_until: dict[Address, float] = {}

    def __len__(self) -> int:
        """Return how many commands wait or are under way."""
        return self._waiting

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case Describe() | Release():
                    outputs += self._wished(given, now)
                case DatagramReceived(socket=socket) if socket == SOCKET:
                    outputs += self._replied(given, now)
                case TimerFired(key=str(cookie)):
                    outputs += self._unanswered(cookie, now)
        return outputs

    def _wished(self, wish: Describe | Release, now: float) -> list[Output]:
        if self._waiting >= COMMANDS_MAX:
            return _failed(wish, f"{COMMANDS_MAX} commands wait for media relays")
        if isinstance(wish, Describe) and len(wish.sdp) > DESCRIPTION_BYTES_MAX:
            return _failed(wish, f"a description of over {DESCRIPTION_BYTES_MAX} bytes")
        if max(map(len, (wish.call_id, wish.from_tag, wish.to_tag))) > ng.NAME_CHARACTERS_MAX:
            return _failed(wish, f"a Call-ID or tag of over {ng.NAME_CHARACTERS_MAX} characters")
        self._waiting += 1
        line = self._lines.setdefault(wish.call_id, deque())
        line.append(wish)
        return self._go_on(wish.call_id, now) if len(line) == 1 else []

    def _go_on(self, call_id: str, now: float) -> list[Output]:
        """Begin with the next that is to be said of a call, past what cannot be."""
        outputs: list[Output] = []
        line = self._lines[call_id]
        while line:
            if relays := self._relays_for(line[0], now):
                return outputs + self._ask(line[0], relays, now)
            self._waiting -= 1
            outputs += _failed(line.popleft(), "the call's media relay does not answer")
        del self._lines[call_id]
        return outputs

    def _relays_for(self, wish: Describe | Release, now: float) -> list[Address]:
        """Return whom to ask, in order: for an offer all that answer, the call's own first; else that one alone."""
        ranked = sorted(self._relays, key=lambda relay: _rank(wish.call_id, relay))
        home = self._homes.get(wish.call_id)
        if home is not None:
            ranked = [home.relay, *(relay for relay in ranked if relay != home.relay)]
            if isinstance(wish, Release) and wish.unless_answered and home.answered:
                return []
        present = [relay for relay in ranked if self._lost_until.get(relay, now) <= now]
        if not (isinstance(wish, Describe) and wish.kind == "offer"):
            return [relay for relay in ranked[:1] if relay in present]
        # Where none is left, the one that has been lost for longest may be back.
        return present or sorted(ranked, key=lambda relay: self._lost_until[relay])[:1]

    def _ask(self, wish: Describe | Release, relays: list[Address], now: float) -> list[Output]:
        cookie = self._random.token(_COOKIE_BYTES).hex()
        data = ng.write_command(cookie.encode(), _fields(wish))
        command = self._under_way[cookie] = _Command(wish, relays[0], relays[1:], data)
        return self._send(cookie, command, now)

    def _send(self, cookie: str, command: _Command, now: float) -> list[Output]:
        again_at = now + self._random.uniform(*REPEAT_S)
        return [SendDatagram(SOCKET, command.relay, command.data), SetTimer(cookie, again_at)]

    def _replied(self, given: DatagramReceived, now: float) -> list[Output]:
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
            sdp, fault = "", f"a description of over {ANSWERED_BYTES_MAX} bytes"
        if isinstance(command.wish, Release):
            return [*outputs, *self._done(command.wish, now)]
        if fault or not sdp:
            return [*outputs, *self._next(command, f"{shown(command.relay)}: {fault or 'no description'}", now)]
        self._remember(command.wish, command.relay)
        outputs.append(Described(command.wish.key, sdp.encode(errors="surrogateescape")))
        return [*outputs, *self._done(command.wish, now)]

    def _unanswered(self, cookie: str, now: float) -> list[Output]:
        """Say it again, or give the relay up."""
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

    def _next(self, command: _Command, reason: str, now: float) -> list[Output]:
        """Ask the next relay that answers, if there is one."""
        others = [relay for relay in command.others if self._lost_until.get(relay, now) <= now]
        if others:
            return self._ask(command.wish, others, now)
        return [*_failed(command.wish, reason), *self._done(command.wish, now)]

    def _done(self, wish: Describe | Release, now: float) -> list[Output]:
        """Leave off with ``wish``, the first in its line."""
        self._waiting -= 1
        self._lines[wish.call_id].popleft()
        return self._go_on(wish.call_id, now)

    def _remember(self, wish: Describe, relay: Address) -> None:
        before = self._homes.pop(wish.call_id, None)
        if len(self._homes) >= HOMES_MAX:
            del self._homes[next(iter(self._homes))]
        answered = wish.kind == "answer" or (before is not None and before.answered)
        self._homes[wish.call_id] = _Home(relay, answered)


def _failed(wish: Describe | Release, reason: str) -> list[Output]:
    return [Described(wish.key, None, reason)] if isinstance(wish, Describe) else []


def _fields(wish: Describe | Release) -> ng.Fields:
    if isinstance(wish, Release):
        return ng.delete(call_id=wish.call_id, from_tag=wish.from_tag, to_tag=wish.to_tag)
    return ng.describe(
        wish.kind,
        wish.sdp.decode(errors="surrogateescape"),
        call_id=wish.call_id,
        from_tag=wish.from_tag,
        to_tag=wish.to_tag,
        source_ip=wish.source_ip,
    )


def _rank(call_id: str, relay: Address) -> bytes:
    """Return where ``relay`` stands for a call: each call has an order of its own, the same every time."""
    return hashlib.sha256(f"{shown(relay)} {call_id}".encode(errors="surrogateescape")).digest()
