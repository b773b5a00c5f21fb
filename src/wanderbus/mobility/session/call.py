"""Working state of one session: its pending exchanges, in addition to the agreed state (:mod:`.session`)."""

from __future__ import annotations

import msgspec

from wanderbus.mobility.session.session import (
    SIPSession,
)
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.message.uri import SIPUri


class OutgoingInvite(msgspec.Struct):
    """Our INVITE or re-INVITE, from the owner's request to its end."""

    media: MediaDescription
    attempt: int = 0
    """Number of times it was sent or repeated, without challenges."""
    failures: int = 0
    """Number of temporary refusals; sets the pause before the next attempt."""
    silences: int = 0
    """Number of attempts that were given up without a response."""
    challenges: int = 0
    """Number of challenges since the last successful authentication."""
    intervals: int = 0
    """Number of refusals because our session interval was too small (RFC 4028 7.4)."""
    method: str = "INVITE"
    """INVITE, or UPDATE if the owner requested that and the peer supports it (RFC 3311)."""
    redirected_to: SIPUri | None = None
    """Target of a 3xx instead of the address of record."""
    redirections: int = 0
    """Number of 3xx that were followed."""
    through_proxy: bool = False
    """True if a re-INVITE goes to the address of record instead of directly to the peer."""
    transaction: str | None = None
    """The transaction under way; None during a pause or while the peer's INVITE is pending."""
    request: Request | None = None
    sent_at: float | None = None
    hurried: bool = False
    """True if attempts end earlier than in RFC 3261: to restore a session whose data do not flow, to announce our new
    address, or because the owner requested it.
    """
    following: OutgoingInvite | None = None
    """The owner's next update, to be sent once this one is answered (RFC 3261 14.1)."""
    crossed: bool = False
    """True if the peer's INVITE crossed ours: it may have abandoned its own, as we did ours, and then it ignores our
    200. Only its ACK shows that our 200 arrived.
    """
    sent_in_answer: bool = False
    """True if our 200 contained the same, so that its ACK makes this INVITE unnecessary."""

    def restart(self, media: MediaDescription) -> None:
        """Offer ``media`` in place of this update and the next one."""
        self.media, self.following = media, None

    def follow(self) -> None:
        """Replace this update by the next one."""
        if self.following is not None:
            self.media, self.following = self.following.media, None


class PeerOffer(msgspec.Struct, frozen=True):
    """The peer's INVITE, re-INVITE or UPDATE, waiting for the owner's reply."""

    transaction: str
    request: Request
    description: SessionDescription | None
    """The offer; None if our answer must contain the offer (RFC 3261 13.2.1)."""
    media: MediaDescription | None
    """The media of the offer for the owner."""
    local_tag: str
    """The tag of our response: a new one if the INVITE begins a dialog."""
    update: bool
    """True if the session was established before."""


class Unconfirmed(msgspec.Struct, frozen=True):
    """Our 200 to an INVITE, repeated until its ACK arrives (RFC 3261 13.3.1.4)."""

    transaction: str
    response: Response
    cseq: int
    interval_s: float
    give_up_at: float
    update: bool
    offers: bool = False
    """True if the 200 is an offer, so that the ACK must contain the answer (RFC 3261 13.2.2.4)."""


class Refresh(msgspec.Struct):
    """Our UPDATE without offer, which only refreshes the session (RFC 4028 7.4)."""

    transaction: str
    challenges: int = 0
    intervals: int = 0


class PendingBye(msgspec.Struct):
    """Our BYE and its reason."""

    transaction: str
    reason: str
    challenges: int = 0


class Call(msgspec.Struct):
    """One session with its pending exchanges."""

    session: SIPSession
    is_service: bool = False
    """True if the peer is a service of several servers, one of which may redirect to another."""
    outgoing: OutgoingInvite | None = None
    offer: PeerOffer | None = None
    unconfirmed: Unconfirmed | None = None
    refresh: Refresh | None = None
    pending_bye: PendingBye | None = None
    ringing: bool = False
    """True after :class:`Ring`, while the user decides."""
    ending: bool = False
    """True if our first INVITE was cancelled and waits for its final response: by the owner or after a timeout."""
    unanswered: bool = False
    """True if the first INVITE was given up without a response, and not by the owner."""

    @property
    def established(self) -> bool:
        """True if offer and answer were exchanged once."""
        return self.session.dialog is not None and self.session.remote_media is not None

    @property
    def exchanging(self) -> bool:
        """True if an exchange begun by the peer is open, so that we must not offer (RFC 3264 4)."""
        return self.offer is not None or (self.unconfirmed is not None and self.unconfirmed.offers)

    @property
    def inviting(self) -> bool:
        """True if a re-INVITE or INVITE of ours is under way, so that one of the peer is glare (RFC 3261 14.2)."""
        return self.outgoing is not None and self.outgoing.transaction is not None
