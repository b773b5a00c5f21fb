"""What the proxy asks of media relays and is told: the words between it and the machine that commands them (SPEC I).

A call is anchored when its data go by a relay that both sides can reach: the relay's address and ports stand in the
session descriptions that the proxy passes on. Only offers in requests are anchored, with their answers. Where the
called side offers (RFC 3261 13.2.1: an INVITE without a description, answered by the ACK), both pass as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal, Protocol, TypeVar

import msgspec

from wanderbus.machine import Input, Output
from wanderbus.sip.message.checks import SDP_TYPE, media_type_of
from wanderbus.sip.message.message import Request, Response

SOCKET: Final = "ng"
"""Name of the socket over which relays are commanded."""

RelayCalls = Literal["nat", "all"]
"""Which calls are anchored where the routing script leaves it open: those with a side behind NAT or of which a side
asks for a relay, or every one."""

_OFFERING: Final = ("INVITE", "UPDATE")
_WANTS_RELAY: Final = re.compile(rb"^a=wanderbus-relay\r?$", re.MULTILINE)

_Message = TypeVar("_Message", Request, Response)


class Describe(Input, frozen=True):
    """Ask a relay for ``sdp`` with its own addresses in it; :class:`Described` with the same ``key`` always follows.

    ``from_tag`` is of who offers, for the answer too, and ``to_tag`` of who answers, "" while unknown. ``source_ip`` is
    where the side that ``sdp`` describes is seen, if that is behind NAT, else "".
    """

    key: str
    kind: Literal["offer", "answer"]
    sdp: bytes
    call_id: str
    from_tag: str
    to_tag: str = ""
    source_ip: str = ""


class Release(Input, frozen=True):
    """End what was anchored of a call between these two tags; with ``to_tag`` "" all that ``from_tag`` offered in it.

    With ``unless_answered`` a call stays of which an answer has been described. Nothing is told about it, and no harm
    done if there is nothing.
    """

    call_id: str
    from_tag: str
    to_tag: str = ""
    unless_answered: bool = False


class Described(Output, frozen=True):
    """The description that was asked for under ``key``; None if no relay gave one, for ``reason``."""

    key: str
    sdp: bytes | None
    reason: str = ""


class MediaAnchor(Protocol):
    """Commands relays: takes :class:`Describe`, :class:`Release`, datagrams and timers; tells :class:`Described`."""

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        ...


class Anchored(msgspec.Struct, frozen=True):
    """What is remembered of an offer that a relay has: whose it is, and whether it began the call."""

    call_id: str
    from_tag: str
    begins: bool

    @classmethod
    def of(cls, request: Request) -> Anchored:
        """Return what to remember of the offer in ``request``."""
        return cls(request.call_id, request.from_.tag or "", request.to.tag is None)


def describes(message: Request | Response) -> bool:
    """Say whether ``message`` has a session description, and nothing else, for its body."""
    readable = media_type_of(message.header("Content-Type")) == SDP_TYPE and message.header("Content-Encoding") is None
    return bool(message.body) and readable


def offers(request: Request) -> bool:
    """Say whether ``request`` offers a session, anew or otherwise than before."""
    return request.method in _OFFERING and describes(request)


def wants_relay(request: Request) -> bool:
    """Say whether ``request`` offers a session and asks for a relay: a firewall drops what goes without (SPEC I-08)."""
    return offers(request) and _WANTS_RELAY.search(request.body) is not None


def offer_of(request: Request, key: str, source_ip: str) -> Describe:
    """Return what to ask for the offer in ``request``."""
    from_tag, to_tag = request.from_.tag or "", request.to.tag or ""
    return Describe(key, "offer", request.body, request.call_id, from_tag, to_tag, source_ip)


def answer_of(response: Response, key: str, source_ip: str) -> Describe:
    """Return what to ask for the answer in ``response``."""
    from_tag, to_tag = response.from_.tag or "", response.to.tag or ""
    return Describe(key, "answer", response.body, response.call_id, from_tag, to_tag, source_ip)


def release_of(message: Request | Response) -> list[Release]:
    """Return the end of what was anchored in the dialog of ``message``; nothing if it has not the tags of both."""
    from_tag, to_tag = message.from_.tag, message.to.tag
    return [Release(message.call_id, from_tag, to_tag)] if from_tag and to_tag else []


def described(message: _Message, sdp: bytes) -> _Message:
    """Return ``message`` with ``sdp`` for its body."""
    return msgspec.structs.replace(message, body=sdp)
