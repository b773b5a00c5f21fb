"""What a user agent may be told, and what it reports (SPEC C-02, C-04).

Inputs are imperative for requests of the owner, reports are in the past tense. Datagrams and timers come and
go as in every machine (:mod:`wanderbus.machine`). A session's ``id`` is its Call-ID (SPEC X8). ``media`` is the line
of a description that matters most, with all further ones ``beside`` it (SPEC C-16).
"""

from __future__ import annotations

from typing import Literal

from wanderbus.machine import Address, Input, Output
from wanderbus.mobility.session.status import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.sip.message.sdp import MediaDescription


class Start(Input, frozen=True):
    """Register now and keep the registration fresh (SPEC D-02, D-03)."""


class Stop(Input, frozen=True):
    """End every session with BYE and remove the binding (SPEC D-04)."""


class Unregister(Input, frozen=True):
    """Remove the binding and keep the sessions (SPEC C-02, D-04); :class:`Start` registers anew."""


class AddressChanged(Input, frozen=True):
    """This device is now reached at ``contact``: register at once (SPEC D-05, D-08 step 1).

    The owner then says with :class:`UpdateSession` which media each session has from now on (D-08 step 2).
    """

    contact: Address


class FlowFailed(Input, frozen=True):
    """What we send does not get to the server: register anew, after a pause that grows (RFC 5626 4.5).

    To be given when the transport says so: ICMP told that the port is unreachable, or a connection broke.
    """


class CreateSession(Input, frozen=True):
    """Invite ``uri``, offering ``media``, into a new session ``id``.

    An INVITE waits for its answer as RFC 3261 says. One that is ``hurried`` is cancelled after a few seconds and sent
    anew under the same id: only for a peer that takes this for the newer word of the same caller, as a broker does.
    """

    id: str
    uri: str
    media: MediaDescription
    hurried: bool = False


class UpdateSession(Input, frozen=True):
    """Tell the other side of session ``id`` where and how it reaches us now; replaces an update still under way.

    Ignored for an unknown session: it may just have ended. ``method`` UPDATE saves the ACK (RFC 3311) but asks for an
    answer at once; where the other side does not take it, a re-INVITE goes instead.
    """

    id: str
    media: MediaDescription
    method: Literal["INVITE", "UPDATE"] = "INVITE"


class ChangeMedia(Input, frozen=True):
    """Receive at ``media`` from now on in every session, and tell the other sides (SPEC C-18)."""

    media: MediaDescription


class TerminateSession(Input, frozen=True):
    """End session ``id`` with BYE, or CANCEL while it is not answered; ignored when it is gone already.

    CANCEL has to wait for a provisional response (RFC 3261 9.1), and the INVITE is repeated until there is one. With
    ``quietly`` it is not: the owner calls anew, and the old INVITE must not arrive after the new one.
    """

    id: str
    quietly: bool = False


class Ring(Input, frozen=True):
    """Tell the caller of session ``id`` that its user is being asked (180); ignored unless the INVITE waits for that.

    :class:`Answer` or :class:`Refuse` follows when the user has decided (RFC 3261 13.3.1.1).
    """

    id: str


class Answer(Input, frozen=True):
    """Accept what :class:`SessionOffered` offered, with ``media`` as ours; ignored when the offer is gone already.

    To :class:`OfferWanted` it is our offer. When no line of ours is among those offered, the offer is refused (488).
    With ``renews`` an update of ours that waits or is under way says ``media`` from now on, not what it was given.
    """

    id: str
    media: MediaDescription
    renews: bool = False


class Refuse(Input, frozen=True):
    """Decline :class:`SessionOffered` or :class:`OfferWanted` with a final SIP ``status`` (300 to 699).

    ``reason`` is the reason phrase, one line for people; the usual one of the status when None.
    """

    id: str
    status: int
    reason: str | None = None


class SetMediaStatus(Input, frozen=True):
    """The application saw its data channel to session ``id`` work or fail (SPEC C-14)."""

    id: str
    media: RemoteMediaStatus


class Registered(Output, frozen=True):
    """The registrar holds our binding for ``expires_s`` more seconds; reported at each refresh too."""

    expires_s: float


class RegistrationFailed(Output, frozen=True):
    """A REGISTER was refused with ``status``, or nobody answered (None).

    It is repeated with growing pauses, unless the credentials were refused (401, 403, 404, 407).
    """

    status: int | None
    reason: str


class Unregistered(Output, frozen=True):
    """Our binding was removed, or nobody was there to remove it."""


class SessionOffered(Output, frozen=True):
    """An INVITE (or re-INVITE, ``update``) arrived; reply with :class:`Answer` or :class:`Refuse`, now or later.

    An update may also come by UPDATE, whose sender does not wait: after two seconds it is refused (RFC 3311 5.2).
    A caller that moves before it has the reply offers anew under the same id: one reply then serves, a second is
    ignored, and :class:`SessionEstablished` tells the media that hold. ``instance`` names the caller's device
    (``+sip.instance``, RFC 5626 4.1), None when it has none.
    """

    id: str
    remote_uri: str
    instance: str | None
    media: MediaDescription
    update: bool


class OfferWanted(Output, frozen=True):
    """An INVITE without offer arrived (RFC 3261 13.2.1); reply with :class:`Answer`, which is our offer, or refuse.

    :class:`SessionEstablished` tells the caller's answer, which comes with its ACK. An established session is
    offered again as it stands without asking.
    """

    id: str
    remote_uri: str
    instance: str | None


class SessionEstablished(Output, frozen=True):
    """Both sides agreed; the other side receives at ``media``.

    The callee reports it on sending its 200, the caller on receiving it (SPEC X12). ``media`` are the lines in
    use on both sides, in the order of our own.
    """

    id: str
    media: MediaDescription
    update: bool


class SessionFailed(Output, frozen=True):
    """Our INVITE was refused with ``status`` or never answered (None): there is no session."""

    id: str
    status: int | None
    reason: str


class UpdateFailed(Output, frozen=True):
    """Our re-INVITE failed for good: the session is gone and has to be created anew."""

    id: str
    status: int | None
    reason: str


class SessionRemoved(Output, frozen=True):
    """The session ended: by BYE of either side, because it expired, or its caller gave up before it began."""

    id: str
    reason: str


class SessionStateChanged(Output, frozen=True):
    """One of the two states of a session changed; both are given (SPEC C-12, C-13)."""

    id: str
    communication: SIPCommunicationStatus
    media: RemoteMediaStatus
