"""Interface between the proxy and the machine that commands media relays (SPEC I).

A call is anchored if its data pass a relay that both sides can reach: the session descriptions that the proxy forwards
then contain the relay's address and ports. Only offers in requests are anchored, with their answers. If the callee
makes the offer (RFC 3261 13.2.1: an INVITE without a description, with the answer in the ACK), both are forwarded
unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from wanderbus.machine import DatagramReceived, Input, Output, TimerFired
from wanderbus.sip.message.checks import SDP_TYPE, media_type_of
from wanderbus.sip.message.message import Request, Response

SOCKET: Final = "ng"
"""Name of the socket for commands to relays."""

RelayCalls = Literal["nat", "all"]
"""Calls to anchor if the routing script does not decide: those with a side behind NAT or with a side that asks for a
relay, or all.
"""

_OFFERING: Final = ("INVITE", "UPDATE")
_WANTS_RELAY: Final = re.compile(rb"^a=wanderbus-relay\r?$", re.MULTILINE)

_Message = TypeVar("_Message", Request, Response)


class Describe(Input, frozen=True):
    """Ask a relay to put its own addresses into ``sdp``; :class:`Described` with the same ``key`` always follows.

    ``from_tag`` is that of the offerer, also for the answer; ``to_tag`` is that of the answerer, "" while unknown.
    ``source_ip`` is the observed source address of the side that ``sdp`` describes if that is behind NAT, else "".
    """

    key: str
    kind: Literal["offer", "answer"]
    sdp: bytes
    call_id: str
    from_tag: str
    to_tag: str = ""
    source_ip: str = ""


class Release(Input, frozen=True):
    """Release the anchored media of a call between these two tags; with ``to_tag`` "" all offers of ``from_tag`` in it.

    With ``unless_answered`` a call with a described answer is kept. There is no report, and an unknown call is ignored.
    """

    call_id: str
    from_tag: str
    to_tag: str = ""
    unless_answered: bool = False


class Described(Output, frozen=True):
    """The description requested under ``key``; None if no relay provided one, for ``reason``."""

    key: str
    sdp: bytes | None
    reason: str = ""


MediaInput = Describe | Release | DatagramReceived | TimerFired
"""Inputs of a machine that commands relays."""


class MediaAnchor(Protocol):
    """Commands relays; reports :class:`Described`, and what its owner shows the operator."""

    def step(self, inputs: Iterable[MediaInput], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``; return the outputs in order."""
        ...


class Anchored(msgspec.Struct, frozen=True):
    """Record of an offer that a relay has: its owner, and the tag of the other side, "" if it began the call."""

    call_id: str
    from_tag: str
    to_tag: str

    @property
    def begins(self) -> bool:
        """Return whether it began the call."""
        return not self.to_tag

    @classmethod
    def of(cls, request: Request) -> Anchored:
        """Return the record of the offer in ``request``."""
        return cls(request.call_id, request.from_.tag or "", request.to.tag or "")


def describes(message: Request | Response) -> bool:
    """Return whether the body of ``message`` is a session description, and nothing else."""
    readable = media_type_of(message.header("Content-Type")) == SDP_TYPE and message.header("Content-Encoding") is None
    return bool(message.body) and readable


def offers(request: Request) -> bool:
    """Return whether ``request`` offers a session, new or changed."""
    return request.method in _OFFERING and describes(request)


def wants_relay(request: Request) -> bool:
    """Return whether ``request`` offers a session and asks for a relay: a firewall drops direct data (SPEC I-08)."""
    return offers(request) and _WANTS_RELAY.search(request.body) is not None


def offer_of(request: Request, key: str, source_ip: str) -> Describe:
    """Return the command for the offer in ``request``."""
    from_tag, to_tag = request.from_.tag or "", request.to.tag or ""
    return Describe(key, "offer", request.body, request.call_id, from_tag, to_tag, source_ip)


def answer_of(response: Response, key: str, source_ip: str) -> Describe:
    """Return the command for the answer in ``response``."""
    from_tag, to_tag = response.from_.tag or "", response.to.tag or ""
    return Describe(key, "answer", response.body, response.call_id, from_tag, to_tag, source_ip)


def release_of(message: Request | Response) -> list[Release]:
    """Return the release of the anchored media in the dialog of ``message``; nothing if a tag is missing."""
    from_tag, to_tag = message.from_.tag, message.to.tag
    return [Release(message.call_id, from_tag, to_tag)] if from_tag and to_tag else []


def described(message: _Message, sdp: bytes) -> _Message:
    """Return ``message`` with ``sdp`` as its body."""
    return msgspec.structs.replace(message, body=sdp)
