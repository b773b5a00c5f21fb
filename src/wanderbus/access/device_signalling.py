"""Sessions with devices: the signalling half of the access server.

It serves what the user agent reports: agents that open, move and end their sessions. It makes their data channels, and
reports links and dialogs to the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from wanderbus.access.connect_pacing import ConnectPacing
from wanderbus.access.device_session import DeviceSession
from wanderbus.access.followers import Followers
from wanderbus.access.messages import BrokerRegistered, BrokerUnregistered, ChannelRefused
from wanderbus.access.parts import TRANSPORTS, USER_AGENT
from wanderbus.access.session_channels import SessionChannels
from wanderbus.access.session_table import SessionTable
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import DialogChanged, LinkClosed, LinkOpened
from wanderbus.broker.sessions.handover_messages import DeviceLocated
from wanderbus.broker.signals import BrokerInput
from wanderbus.broker.state.rows import device_key, session_key
from wanderbus.composition import Composition
from wanderbus.datachannel.description import former_of, places_of, read_place, session_of
from wanderbus.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, StateCorrupt
from wanderbus.hosts import domain_of
from wanderbus.machine import CancelTimer, CloseStream, Output, SendDatagram, SendOnStream, SetTimer
from wanderbus.mobility import messages as sip
from wanderbus.mobility.session.session import RemoteMediaStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.peers.owner_messages import (
    CallPostponed,
    CallRedirected,
    CallRefused,
    CallServed,
    OwnerWanted,
    VisitorCalled,
)
from wanderbus.peers.parts import BROKER, HANDOVERS, OWNERS
from wanderbus.protocol import OPERATIONS
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.sip.message.sdp import MediaDescription, receives
from wanderbus.sip.proxy.visit_proofs import read_proof
from wanderbus.transport import Probe, SendMessage

RENEW_AFTER_S: Final = 0.3
"""Pause before the first renewal: agents that are sending receive a reset, and renew their sessions themselves."""

RENEW_PACE_S: Final = 0.01
"""Pause between two renewals."""

REGISTRATION_REFUSALS: Final = frozenset({401, 403, 404, 407})
"""Responses to a REGISTER that a retry would not change, so the user agent gives up."""

REGISTER_AGAIN_S: Final = 30.0
"""Pause before the next attempt after such a response: the operator may have corrected the configuration."""


class DeviceSignalling:
    """Routes the outputs of the ``user_agent`` to the other ``parts`` of the access server.

    :param asks_owner: whether another server of the domain may own the session of a caller
    :param is_alone: whether there is no other server in the domain
    """

    def __init__(
        self,
        parts: Composition[Output],
        user_agent: UserAgent,
        broker: Broker,
        sessions: SessionTable,
        channels: SessionChannels,
        *,
        asks_owner: bool = False,
        is_alone: bool = True,
    ) -> None:
        self.refused: Counter[str] = Counter()
        """Refused data channels by reason; there are few different reasons."""
        self._parts = parts
        self._user_agent = user_agent
        self._broker = broker
        self._sessions = sessions
        self._channels = channels
        self._pacing = ConnectPacing(broker.config.user_connects_per_s)
        self._asks_owner = asks_owner
        self._is_alone = is_alone
        self._followers = Followers()
        self._undecided: dict[str, sip.SessionOffered] = {}
        """Offers of new sessions whose server is not decided yet, by id."""

    def restore(self, now: float) -> None:
        """Restore the sessions that the broker's log has, and renew them paced."""
        at = now + RENEW_AFTER_S
        for device in self._broker.state.devices.values():
            if device.binding:
                try:
                    identity = self._user_agent.adopt(device.binding)
                except LocalProtocolError as error:
                    raise StateCorrupt(f"the stored session of {device.user} cannot be read: {error}") from None
                media = self._user_agent.sessions[identity].local_media
                channel = self._channels.make(identity, device.user, media)
                self._sessions.add(DeviceSession(identity, device.user, device.device, channel))
                self._parts.emit(SetTimer(("renew", identity), at))
                at += RENEW_PACE_S

    def route(self, outputs: list[sip.UserAgentOutput], now: float) -> None:
        """Route all outputs of one step of the user agent."""
        for output in outputs:
            match output:
                case sip.SessionOffered(id=identity) if identity in self._sessions.by_id:
                    self._on_session_offered(output)
                case sip.SessionOffered(id=identity) if identity in self._undecided:
                    self._undecided[identity] = output
                case sip.SessionOffered():
                    self._on_new_session_offered(output, now)
                case sip.SessionEstablished(id=identity, media=media):
                    if session := self._sessions.by_id.get(identity):
                        self._on_session_established(session, media)
                case sip.UpdateFailed(id=identity, reason=reason) | sip.SessionRemoved(id=identity, reason=reason):
                    self._pacing.withdraw(identity)
                    self._undecided.pop(identity, None)
                    self._on_session_removed(identity, reason, now)
                case sip.Registered():
                    self._parts.emit(BrokerRegistered())
                case sip.RegistrationFailed(status=status, reason=reason):
                    self._parts.emit(BrokerUnregistered(status, reason))
                    if status in REGISTRATION_REFUSALS:
                        self._parts.emit(SetTimer("register", now + REGISTER_AGAIN_S))
                case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer():
                    self._parts.emit(output)
                case LoginRefused() | Limited():
                    self._parts.emit(output)

    def _on_new_session_offered(self, offer: sip.SessionOffered, now: float) -> None:
        """Serve the offer of a new session, or let it wait while its user opens sessions too fast.

        Every new session passes here before this server stores anything about it.
        """
        if not self._pacing.add(offer):
            self._parts.emit(Limited("broker.user_connects_per_s", offer.remote_uri, "refused"))
            self._parts.give(USER_AGENT, [sip.Refuse(offer.id, 503)])
        elif offer not in self.serve_waiting(offer.remote_uri, now):
            self._parts.emit(Limited("broker.user_connects_per_s", offer.remote_uri, "a new session waits"))

    def serve_waiting(self, user: str, now: float) -> list[sip.SessionOffered]:
        """Serve the offers of ``user`` that are due, or ask which server owns the session; return the offers."""
        due, next_at = self._pacing.take_due(user, now)
        if next_at is not None:
            self._parts.emit(SetTimer(("connect", user), next_at))
        for offer in due:
            session = session_of(offer.media)
            if self._asks_owner and not offer.update and not self._is_visit(user, session):
                self._undecided[offer.id] = offer
                device = user, _device_of(offer)
                follows = device in self._sessions.by_device or self._followers.has(device, now)
                wanted = OwnerWanted(offer.id, user, session, former_of(offer.media), follows=follows)
                self._parts.give(OWNERS, [wanted])
            else:
                self._on_session_offered(offer)
        return due

    def _is_visit(self, user: str, session: str) -> bool:
        """Return whether a call is for requests of an operator, which are about the server that was called."""
        row = self._broker.state.sessions.get(session_key(user, session))
        is_operator = session == OPERATIONS and user in self._broker.config.roles
        return is_operator and (row is None or not row.is_fenced)

    def on_decided(self, decision: CallServed | CallRedirected | CallPostponed) -> None:
        """Carry a decision out; that a visitor is served here is decided by what the operator has chosen."""
        offer = self._undecided.get(decision.call)
        if offer is None or not isinstance(decision, CallServed) or not self._is_of_other_domain(offer.remote_uri):
            self.carry_out(decision)
            return
        is_certain = self._is_alone or bool(decision.unowned)
        session, visit = session_of(offer.media), read_proof(offer.visit)
        self._parts.give(HANDOVERS, [VisitorCalled(offer.id, offer.remote_uri, session, is_certain, visit)])

    def _is_of_other_domain(self, user: str) -> bool:
        domain = self._broker.config.domain
        return bool(domain) and domain_of(user) != domain

    def carry_out(self, decision: CallServed | CallRedirected | CallPostponed | CallRefused) -> None:
        """Serve the offer of a new session, redirect it to its owner (RFC 3261 21.3.3), or let it come again.

        Do nothing if it was withdrawn.
        """
        offer = self._undecided.pop(decision.call, None)
        if offer is None:
            return
        device = offer.remote_uri, _device_of(offer)
        if isinstance(decision, CallRefused):
            self._parts.give(USER_AGENT, [sip.Refuse(offer.id, 480, decision.reason)])
        elif isinstance(decision, CallRedirected):
            self._parts.give(USER_AGENT, [sip.Refuse(offer.id, 302, contacts=decision.contacts)])
            self._followers.forget(device)
            if previous := self._sessions.by_device.get(device):
                self.end(previous, "its device was redirected to the server that owns the session")
        elif isinstance(decision, CallPostponed):
            reason = f"{decision.former}, which has the subscriptions of this device, cannot be reached"
            self._parts.give(USER_AGENT, [sip.Refuse(offer.id, 480, reason)])
        else:
            self._followers.forget(device)
            self._on_session_offered(offer)

    def _on_session_offered(self, offer: sip.SessionOffered) -> None:
        """Answer an authenticated agent that opens its session, or moves to another address in it."""
        session = self._sessions.by_id.get(offer.id) or self._new_session(offer)
        former = session.channel.local
        try:
            self._check_room(session)
            opened, for_transports = session.channel.accept(self._channels.read(session.channel, offer.media))
        except (RemoteProtocolError, LimitExceeded) as error:
            self._refused(session, error)
            self._parts.give(USER_AGENT, [sip.Refuse(offer.id, 488, str(error))])
            return
        previous = self._sessions.by_device.get((session.user, session.device))
        if previous is not None and previous is not session:
            # The same device opened a new session: the old one is over (SPEC E-10).
            self._hang_up(previous)
        self._sessions.add(session)
        if opened:
            session.fresh = True
            self._sessions.connected(session, former)
        self._parts.give(TRANSPORTS, for_transports)
        self._parts.give(USER_AGENT, [sip.AcceptOffer(offer.id, self._channels.describe(session.channel), renews=True)])
        self._locate_others(session, places_of(offer.media))

    def _locate_others(self, session: DeviceSession, places: list[str]) -> None:
        """Find the other devices of a user where one of them reports them (SPEC D-14); refuse what is no place."""
        others = {each.channel.remote.connection: each for each in self._of_user(session) if each.channel.remote}
        for text in places:
            try:
                place = read_place(text)
                if other := others.get(place.connection):
                    self._parts.give(TRANSPORTS, self._channels.locate(other.channel, place))
            except RemoteProtocolError as error:
                self._refused(session, error)

    def _of_user(self, session: DeviceSession) -> list[DeviceSession]:
        return [each for each in self._sessions.of_user(session.user) if each is not session]

    def _new_session(self, offer: sip.SessionOffered) -> DeviceSession:
        known = self._user_agent.sessions.get(offer.id)
        channel = self._channels.make(offer.id, offer.remote_uri, known.local_media if known else None)
        return DeviceSession(offer.id, offer.remote_uri, _device_of(offer), channel)

    def _check_room(self, session: DeviceSession) -> None:
        """Raise :class:`LimitExceeded` if a new session would be one device too many for its user.

        At the bound, a session that nobody ended gives way if its device is not connected and no member any more.
        """
        if session.id in self._sessions.by_id:
            return
        others = self._sessions.others(session.user, session.device)
        while others >= self._broker.config.user_devices_max and (stale := self._stale(session)):
            self.end(stale, "gave way to another device of its user")
            others = self._sessions.others(session.user, session.device)
        if refusal := self._broker.refusal(session.user, session.device, others, self._sessions.by_device):
            self._parts.give(TRANSPORTS, self.probes(session.user))
            raise refusal

    def probes(self, user: str) -> list[Probe]:
        """Return the checks whether the devices of ``user`` still answer: a device may have gone unnoticed (G-02)."""
        return [Probe(each.channel.local) for each in self._sessions.of_user(user) if each.channel.local]

    def _stale(self, wanted: DeviceSession) -> DeviceSession | None:
        """Return a session of another device of the same user that the broker does not know any more."""
        devices = self._broker.state.devices
        for session in self._sessions.of_user(wanted.user):
            if session.device != wanted.device and device_key(session.user, session.device) not in devices:
                return session
        return None

    def _refused(self, session: DeviceSession, error: RemoteProtocolError | LimitExceeded) -> None:
        self.refused[str(error)] += 1
        limit = error.limit if isinstance(error, LimitExceeded) else None
        self._parts.emit(ChannelRefused(session.user, str(error), limit))

    def _on_session_established(self, session: DeviceSession, media: MediaDescription) -> None:
        """Store an established or updated session for a restart, and report a new link to the broker.

        The session may have ended in the same batch; the next output reports that.
        """
        sip_session = self._user_agent.sessions.get(session.id)
        if sip_session is None:
            return
        try:
            remote = self._channels.read(session.channel, media)
            opened, for_transports = session.channel.agreed(remote)
        except RemoteProtocolError as error:
            self._refused(session, error)
            if session.channel.remote is None:
                self.set_disconnected([session])
            return
        self._sessions.connected(session)
        self._parts.give(TRANSPORTS, for_transports)
        local_id = session.channel.local
        self._parts.give(TRANSPORTS, [SendMessage(local_id, each) for each in session.hold(held=not receives(media))])
        if session.channel.protocol == "UDP" and not session.held:
            # Behind a NAT of our own, packets come in only after a packet went out.
            self._parts.give(TRANSPORTS, [Probe(local_id)])
        address = f"{remote.address[0]}:{remote.address[1]}"
        for_broker: list[BrokerInput] = []
        if opened or session.fresh:
            session.fresh = False
            for_broker.append(LinkOpened(self._sessions.new_link(session), session.user, session.device))
        for_broker.append(DialogChanged(session.user, session.device, address, sip_session.snapshot()))
        self._parts.give(BROKER, for_broker)
        if self._asks_owner:
            self._parts.give(HANDOVERS, [DeviceLocated(session.user, session.device, remote.address[0])])

    def _on_session_removed(self, identity: str, reason: str, now: float) -> None:
        if session := self._sessions.by_id.get(identity):
            self._expect(session, now)
            self._forget(session)
            self._unbind(session, reason)

    def renew(self, identity: str) -> None:
        """Offer a new data channel in a session from before the restart, unless its agent has already done so."""
        session = self._sessions.by_id.get(identity)
        if session and session.channel.remote is None:
            self._parts.give(TRANSPORTS, session.channel.offer())
            self._parts.give(USER_AGENT, [sip.UpdateSession(identity, self._channels.describe(session.channel))])

    def dropped(self, session: DeviceSession, reason: str, now: float) -> None:
        """End a session whose link the broker has dropped for ``reason``."""
        self._expect(session, now)
        self.end(session, reason)

    def _expect(self, session: DeviceSession, now: float) -> None:
        """Expect a device to follow if its session has left: it hangs up because of that, or before it calls again."""
        if any(row.has_left_domain for row in self._broker.state.sessions_of(session.user)):
            self._followers.expect((session.user, session.device), now)

    def end(self, session: DeviceSession, reason: str) -> None:
        """End a session for ``reason``."""
        self._hang_up(session)
        self._unbind(session, reason)

    def set_disconnected(self, sessions: Iterable[DeviceSession]) -> None:
        """Set the Remote Media Status of these sessions to DISCONNECTED; their SIP status stays (SPEC C-14)."""
        disconnected = RemoteMediaStatus.DISCONNECTED
        self._parts.give(USER_AGENT, [sip.SetMediaStatus(session.id, disconnected) for session in sessions])

    def _hang_up(self, session: DeviceSession) -> None:
        self._forget(session)
        self._parts.give(USER_AGENT, [sip.TerminateSession(session.id)])

    def _forget(self, session: DeviceSession) -> None:
        self._sessions.remove(session)
        self._parts.give(TRANSPORTS, session.channel.close())

    def _unbind(self, session: DeviceSession, reason: str) -> None:
        ended: list[BrokerInput] = [LinkClosed(session.link, reason)]
        self._parts.give(BROKER, [*ended, DialogChanged(session.user, session.device, "", b"")])


def _device_of(offer: sip.SessionOffered) -> str:
    """Return the name of the caller's device; a call without one is a device of its own."""
    return (offer.instance or offer.id).removeprefix("<urn:uuid:").removesuffix(">")
