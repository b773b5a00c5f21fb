"""What a user agent may be told, and what it reports (SPEC C-02, C-04).

Inputs are imperative for requests of the owner, reports are in the past tense. Datagrams and timers come and
go as in every machine (:mod:`wanderbus.machine`). A session's ``id`` is its Call-ID (SPEC X8).
"""

from __future__ import annotations

from wanderbus.machine import Address, Input, Output
from wanderbus.mobility.status import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.sip.sdp import MediaDescription


class Start(Input, frozen=True):
    """Register now and keep the registration fresh (SPEC D-02, D-03)."""


class Stop(Input, frozen=True):
    """End every session with BYE and remove the binding (SPEC D-04)."""


class AddressChanged(Input, frozen=True):
    """This device is now reached at ``contact``: register at once (SPEC D-05, D-08 step 1).

    The owner then says with :class:`UpdateSession` which media each session has from now on (D-08 step 2).
    """

    contact: Address


class CreateSession(Input, frozen=True):
    """Invite ``uri``, offering ``media``, into a new session ``id``."""

    id: str
    uri: str
    media: MediaDescription


class UpdateSession(Input, frozen=True):
    """Tell the other side of session ``id`` where and how it reaches us now; replaces an update still under way.

    Ignored for an unknown session: it may just have ended.
    """

    id: str
    media: MediaDescription


class TerminateSession(Input, frozen=True):
    """End session ``id`` with BYE; ignored when it is gone already."""

    id: str


class Answer(Input, frozen=True):
    """Accept what :class:`SessionOffered` offered, with ``media`` as ours; ignored when the offer is gone already."""

    id: str
    media: MediaDescription


class Refuse(Input, frozen=True):
    """Decline what :class:`SessionOffered` offered with a final SIP ``status`` (300 to 699)."""

    id: str
    status: int


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

    A caller that moves before it has the reply offers anew under the same id: one reply then serves, a second is
    ignored, and :class:`SessionEstablished` tells the media that hold. ``instance`` names the caller's device
    (``+sip.instance``, RFC 5626 4.1), None when it has none.
    """

    id: str
    remote_uri: str
    instance: str | None
    media: MediaDescription
    update: bool


class SessionEstablished(Output, frozen=True):
    """Both sides agreed; the other side receives at ``media``.

    The callee reports it on sending its 200, the caller on receiving it (SPEC X12).
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
    """The session ended: by BYE of either side, or because its caller gave up before it began."""

    id: str
    reason: str


class SessionStateChanged(Output, frozen=True):
    """One of the two states of a session changed; both are given (SPEC C-12, C-13)."""

    id: str
    communication: SIPCommunicationStatus
    media: RemoteMediaStatus
