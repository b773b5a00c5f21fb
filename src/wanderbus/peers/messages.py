"""Inputs and outputs of :class:`~wanderbus.peers.links.ServerLinks`.

Links have positive, rising numbers that are never reused. A request for a link that is not open is ignored, since the
link may just have failed.
"""

from __future__ import annotations

from wanderbus.machine import Address, CancelTimer, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired


class ConnectServer(Input, frozen=True):
    """Keep an own link to ``server``: open it, and open it again after every failure, until :class:`DisconnectServer`.

    It is ignored if that is so already.
    """

    server: str


class DisconnectServer(Input, frozen=True):
    """Close the own link to ``server``, or stop opening it; links that ``server`` has opened stay."""

    server: str


class EndServerLinks(Input, frozen=True):
    """Close all links, and stop opening any: others take their place on the same socket."""

    reason: str


class KnowServers(Input, frozen=True):
    """The servers of a ``group``, whose names begin with it and "/", are these from now on, with their addresses.

    Links with a server that is none of them any more, or has another address, are closed.
    """

    group: str
    servers: tuple[tuple[str, Address], ...]


class SendOnServerLink(Input, frozen=True):
    """Deliver ``payload`` once to the other server, after all payloads that were sent on ``link`` before."""

    link: int
    payload: bytes


class CloseServerLink(Input, frozen=True):
    """Close ``link``; :class:`ServerLinkClosed` follows with ``reason``, a text for people.

    An own link is opened again after a pause. What was sent and not yet received may be lost. The other server notices
    it when it next sends something on the link, at the latest with its keepalive.
    """

    link: int
    reason: str


class ConsumedOnServerLink(Input, frozen=True):
    """Report that the owner has consumed the next ``messages`` messages of ``link``; the peer may send as many again.

    Without these reports the other server stops sending after ``receive_window_frames`` frames.
    """

    link: int
    messages: int


class ServerLinkOpened(Output, frozen=True):
    """A link to ``server`` is open, opened by this side (``is_ours``) or by the other."""

    link: int
    server: str
    is_ours: bool


class ServerLinkClosed(Output, frozen=True):
    """A link failed, was closed, or was replaced by a newer one; ``reason`` is a text for people."""

    link: int
    server: str
    reason: str


class ServerMessageReceived(Output, frozen=True):
    """The next message of ``server`` on ``link``; each is reported once, in the order of sending."""

    link: int
    server: str
    payload: bytes


class PeerUnreachable(Output, frozen=True):
    """``server`` cannot be reached over any link, or the file of the domain differs there; ``reason`` is for people.

    It is reported when it begins, and again if the reason changes, at a bounded rate.
    """

    server: str
    reason: str


class ServerReachable(Output, frozen=True):
    """``server``, which was reported as unreachable, can be reached again, after ``seconds``."""

    server: str
    seconds: float


ServerLinksInput = (
    ConnectServer
    | DisconnectServer
    | EndServerLinks
    | KnowServers
    | SendOnServerLink
    | CloseServerLink
    | ConsumedOnServerLink
    | DatagramReceived
    | TimerFired
)
"""Inputs of the links."""

ServerLinksOutput = (
    ServerLinkOpened
    | ServerLinkClosed
    | ServerMessageReceived
    | PeerUnreachable
    | ServerReachable
    | SendDatagram
    | SetTimer
    | CancelTimer
)
"""Outputs of the links."""
