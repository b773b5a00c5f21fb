"""Inputs and reports of a user agent (SPEC C-02, C-04).

Inputs are imperatives for requests of the owner, reports are past participles. Datagrams and timers are those of every
machine (:mod:`wanderbus.machine`). A session's ``id`` is its Call-ID (SPEC X8). ``media`` is the most important line of
a description, with all further ones in ``beside`` (SPEC C-16).
"""

from __future__ import annotations

from typing import Literal

from wanderbus.machine import (
    Address,
    DatagramReceived,
    Input,
    Output,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.transaction.transaction_signals import LayerInput, LayerOutput, SendRequest


class Start(Input, frozen=True):
    """Register now and keep the registration alive (SPEC D-02, D-03)."""


class StopUserAgent(Input, frozen=True):
    """End every session with BYE and remove the binding (SPEC D-04)."""


class Unregister(Input, frozen=True):
    """Remove the binding and keep the sessions (SPEC C-02, D-04); :class:`Start` registers again."""


class AddressChanged(Input, frozen=True):
    """This device now has the address ``contact``: register at once (SPEC D-05, D-08 step 1).

    The owner then sets the new media of each session with :class:`UpdateSession` (D-08 step 2).
    """

    contact: Address


class FlowFailed(Input, frozen=True):
    """Messages to the server are lost: register again, after a growing pause (RFC 5626 4.5).

    Give this input when the transport reports an error: ICMP port unreachable, or a closed connection.
    """


class CreateSession(Input, frozen=True):
    """Invite ``uri``, offering ``media``, into a new session ``id``.

    An INVITE waits for its response as in RFC 3261. A ``hurried`` one is cancelled after a few seconds and sent again
    under the same id: only for a peer that treats it as an update by the same caller, as a broker does.

    A 3xx is followed once. If the peer ``is_service``, several servers of its domain share ``uri``: a 3xx is followed
    only to one of them, and if that server fails, the INVITE goes to ``uri`` again.
    """

    id: str
    uri: str
    media: MediaDescription
    hurried: bool = False
    is_service: bool = False


class UpdateSession(Input, frozen=True):
    """Send our current address and media to the peer of session ``id``; replaces an update still under way.

    Ignored for an unknown session: it may just have ended. ``method`` UPDATE saves the ACK (RFC 3311) but needs a
    response at once; if the peer does not support it, a re-INVITE is sent instead.
    """

    id: str
    media: MediaDescription
    method: Literal["INVITE", "UPDATE"] = "INVITE"


class ChangeMedia(Input, frozen=True):
    """Receive at ``media`` in every session, and update the peers (SPEC C-18)."""

    media: MediaDescription


class TerminateSession(Input, frozen=True):
    """End session ``id`` with BYE, or CANCEL while it has no final response; ignored if it has ended already.

    CANCEL must wait for a provisional response (RFC 3261 9.1), and the INVITE is repeated until there is one. With
    ``quietly`` it is not repeated: the owner calls again, and the old INVITE must not arrive after the new one.
    """

    id: str
    quietly: bool = False


class Ring(Input, frozen=True):
    """Send 180 to the caller of session ``id``, while its user decides; ignored unless the INVITE waits for a reply.

    :class:`AcceptOffer` or :class:`Refuse` follows when the user has decided (RFC 3261 13.3.1.1).
    """

    id: str


class AcceptOffer(Input, frozen=True):
    """Accept the offer of :class:`SessionOffered`, with ``media`` as ours; ignored if the offer is gone already.

    In reply to :class:`OfferWanted` it is our offer. If the offer has none of our lines, it is refused (488). With
    ``renews``, ``media`` replaces the media of an update of ours that waits or is under way.
    """

    id: str
    media: MediaDescription
    renews: bool = False


class Refuse(Input, frozen=True):
    """Decline :class:`SessionOffered` or :class:`OfferWanted` with a final SIP ``status`` (300 to 699).

    ``reason`` is the reason phrase, one line for people; the usual phrase of the status if None. With a 3xx,
    ``contacts`` are the SIP URIs to invite instead (RFC 3261 8.3).
    """

    id: str
    status: int
    reason: str | None = None
    contacts: tuple[str, ...] = ()


class SetMediaStatus(Input, frozen=True):
    """The application reports that its data channel to session ``id`` works or failed (SPEC C-14)."""

    id: str
    media: RemoteMediaStatus


class Registered(Output, frozen=True):
    """The registrar stores our binding for ``expires_s`` more seconds; reported at each refresh too."""

    expires_s: float


class RegistrationFailed(Output, frozen=True):
    """A REGISTER was refused with ``status``, or had no response (None).

    It is repeated with growing pauses, unless the credentials were refused (401, 403, 404, 407).
    """

    status: int | None
    reason: str


class Unregistered(Output, frozen=True):
    """Our binding was removed, or the registrar did not respond to the removal."""


class SessionOffered(Output, frozen=True):
    """An INVITE (or re-INVITE, ``update``) arrived; reply with :class:`AcceptOffer` or :class:`Refuse`, now or later.

    An update may also arrive as UPDATE, whose sender does not wait: after two seconds it is refused (RFC 3311 5.2). A
    caller that moves before the reply sends a new offer under the same id: one reply then suffices, a second is
    ignored, and :class:`SessionEstablished` reports the valid media. ``instance`` is the caller's device
    (``+sip.instance``, RFC 5626 4.1), None if it has none. ``visit`` is the proof of the call by the caller's own
    domain, as its proxy has written it, "" if there is none.
    """

    id: str
    remote_uri: str
    instance: str | None
    media: MediaDescription
    update: bool
    visit: str = ""


class OfferWanted(Output, frozen=True):
    """An INVITE without offer arrived (RFC 3261 13.2.1); :class:`AcceptOffer` replies with our offer, or refuse it.

    :class:`SessionEstablished` reports the caller's answer, which arrives with its ACK. In an established session the
    present media are offered again without this report.
    """

    id: str
    remote_uri: str
    instance: str | None


class SessionEstablished(Output, frozen=True):
    """Offer and answer are complete; the peer receives at ``media``.

    The callee reports it when it sends its 200, the caller when it receives it (SPEC X12). ``media`` are the lines in
    use on both sides, in the order of our own.
    """

    id: str
    media: MediaDescription
    update: bool


class SessionFailed(Output, frozen=True):
    """Our INVITE was refused with ``status`` or had no response (None): there is no session.

    A service that has moved says with a 3xx ``elsewhere`` it is called now: the same user in another domain.
    """

    id: str
    status: int | None
    reason: str
    elsewhere: str = ""


class UpdateFailed(Output, frozen=True):
    """Our re-INVITE failed permanently: the session has ended and must be created again."""

    id: str
    status: int | None
    reason: str


class SessionRemoved(Output, frozen=True):
    """The session ended: by BYE of either side, by expiry, or its caller cancelled it before it began."""

    id: str
    reason: str


class SessionStateChanged(Output, frozen=True):
    """One of the two states of a session changed; both are given (SPEC C-12, C-13)."""

    id: str
    communication: SIPCommunicationStatus
    media: RemoteMediaStatus


OwnerRequest = (
    CreateSession | UpdateSession | ChangeMedia | TerminateSession | Ring | AcceptOffer | Refuse | SetMediaStatus
)
"""Requests of the owner about a session."""

UserAgentInput = (
    DatagramReceived
    | StreamReceived
    | StreamClosed
    | TimerFired
    | Start
    | StopUserAgent
    | Unregister
    | AddressChanged
    | FlowFailed
    | OwnerRequest
    | SendRequest
)
"""Inputs of a user agent."""

UserAgentOutput = (
    LayerOutput
    | Registered
    | RegistrationFailed
    | Unregistered
    | SessionOffered
    | OfferWanted
    | SessionEstablished
    | SessionFailed
    | UpdateFailed
    | SessionRemoved
    | SessionStateChanged
    | LoginRefused
    | Limited
)
"""Outputs of a user agent."""

Effect = LayerInput | UserAgentOutput
"""Result of a part of the user agent: an input for its transaction layer, or an output of the machine."""
