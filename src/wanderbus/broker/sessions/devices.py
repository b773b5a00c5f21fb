"""Devices: they come and go, join sessions and leave them, and a session moves to another server with its devices."""

from __future__ import annotations

from wanderbus import protocol, records
from wanderbus.broker.backlog import MessageQueue
from wanderbus.broker.basics import Basics
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.engine.matched_delivery import MatchedDelivery
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import DialogChanged, LinkClosed, LinkOpened
from wanderbus.broker.publish.former_servers import FormerServers
from wanderbus.broker.publish.leaving_publishers import LeavingPublishers
from wanderbus.broker.publish.origins import Origins
from wanderbus.broker.readers import Link
from wanderbus.broker.rollback.attachments import Attachments
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.sessions.awaited_sessions import AfterPast, AwaitedSessions
from wanderbus.broker.sessions.far_heads import FarHeads
from wanderbus.broker.sessions.handover import Handover
from wanderbus.broker.sessions.handover_messages import (
    AwaitSession,
    ContinueQueue,
    DevicePast,
    DropExport,
    FenceSession,
    ForgetAwaited,
    HeadWanted,
    ImportSession,
    KeepSession,
    PastFound,
    PastWanted,
    ResumePublishes,
    SessionReported,
    SessionWanted,
    UserUnowned,
)
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.sessions.session_copies import SessionCopies
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.sessions.transfers import Transfers
from wanderbus.broker.sessions.turned_away import TurnedAway
from wanderbus.broker.sessions.unread_warnings import UnreadWarnings
from wanderbus.broker.signals import OfDevices
from wanderbus.broker.state.decentralised_state import encode_past
from wanderbus.broker.state.exported_session import encode_publishers, published_by
from wanderbus.broker.state.rows import device_key, publisher_keys, session_key
from wanderbus.broker.subscriptions import Subscriptions


class Devices:
    """The parts about devices and whole sessions, and their inputs."""

    def __init__(
        self,
        basics: Basics,
        hook: DisconnectionHook,
        subscriptions: Subscriptions,
        messages: MessageQueue,
        engine: EngineEvents,
        matched: MatchedDelivery,
        rollback: Rollback,
        filters: PublisherFilters,
        advertisements: Advertisements,
        settled: SettledInterest,
        interest: InterestRequests,
        after_past: AfterPast,
        former: FormerServers,
        leaving: LeavingPublishers,
        origins: Origins,
    ) -> None:
        self.ends = SessionEnds(basics, subscriptions, engine)
        self.presence = Presence(basics, hook, self.ends)
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._messages = messages
        self._settled = settled
        self._interest = interest
        self._leaving = leaving
        self._turned_away = turned_away = TurnedAway(basics, self.presence, messages)
        self._handover = Handover(basics, subscriptions, turned_away, engine, matched, origins)
        self._far_heads = FarHeads(basics, engine.has_matched, self._handover.head, leaving)
        self._awaited = AwaitedSessions(
            basics, self.presence, subscriptions, interest, filters, turned_away, engine, after_past
        )
        self._attachments = Attachments(
            basics, self.presence, self.ends, self._handover, rollback, filters, subscriptions, advertisements, former
        )
        self.copies = SessionCopies(basics, subscriptions, self.ends, self._awaited, interest)
        self.transfers = Transfers(basics, self.presence, subscriptions)
        self._unread_warnings = UnreadWarnings(basics)

    def on_input(self, given: OfDevices) -> None:
        """Take an input about a device, or about the handover of a session."""
        match given:
            case LinkOpened(link=identity, user=user, device=device):
                if former := self._links.of_device(user, device):
                    self._messages.closes(former)
                if given.is_server and (server := self._settled.met(user)):
                    self._interest.met(server)
                self.presence.opened(identity, user, device, unattended=given.unattended, is_server=given.is_server)
            case LinkClosed(link=identity, reason=reason):
                if link := self._links.get(identity):
                    self._messages.closes(link)
                if link := self._links.get(identity):
                    self.presence.closed(link, reason)
            case DialogChanged():
                self._on_dialog_changed(given)
            case HeadWanted(wanted_by=""):
                self._handover.head(given)
            case HeadWanted():
                self._far_heads.add(given)
            case FenceSession():
                self._handover.fence(given)
            case KeepSession():
                self._handover.keep(given)
            case ResumePublishes(user=user, session=session):
                self._leaving.resume(user, session)
            case DropExport():
                self._handover.drop_export(given)
            case AwaitSession():
                self._awaited.wait_for(given)
            case ForgetAwaited():
                self._awaited.forget(given)
            case UserUnowned():
                self._handover.unowned(given)
            case ImportSession():
                self._awaited.import_session(given)
            case ContinueQueue():
                self._awaited.continue_queue(given)
            case PastWanted():
                self._tell_past(given)
            case SessionWanted():
                self.transfers.wanted(given)
            case SessionReported(question=question):
                (self.transfers if question.name else self.copies).reported(given)

    def _tell_past(self, given: PastWanted) -> None:
        """Let a device go that is at another server now; tell that what it did here.

        From then on it has to bring from there what it has published, also after a crash of this server. If it had gone
        before, this server still names the former one, and so on: the last one in a row knows everything.
        """
        state, asked = self._state, given.question
        session = state.sessions.get(session_key(asked.user, asked.session))
        # Without decentralised channels no device has to go: a server that claims one would only close its link.
        device = None
        if state.servers[state.server].servers:
            self._turned_away.close_device(asked.user, asked.device)
            device = state.devices.get(device_key(asked.user, asked.device))
        after = session.next_owner if session is not None else ""
        if device is not None and device.gone_to in ("", asked.named):
            gone = records.DeviceGone(at_us=state.wall_us, user=asked.user, device=asked.device, server=given.server)
            self._journal.write(gone, urgent=True)
        elif device is not None:
            after = after or device.gone_to
        published = published_by(state, publisher_keys(asked.user, asked.device, decentralised=True))
        past = DevicePast(
            encode_publishers(published) if published else b"",
            encode_past(state.decentralised, state.wall_us),
            "" if after == given.server else after,
            session is not None and bool(session.next_owner),
        )
        self._journal.emit(PastFound(given.server, given.request, past))

    def attach(self, link: Link, message: protocol.Attach) -> None:
        """Take the first message of a link."""
        self._attachments.attach(link, message)

    def go_on(self) -> None:
        """Hand over the sessions for which everything is here now, and transfer end points."""
        self._far_heads.go_on()
        self._handover.go_on()
        self.transfers.go_on()
        self.copies.go_on()

    def sweep(self) -> None:
        """Warn of unread subscriptions."""
        self._unread_warnings.look()

    def _on_dialog_changed(self, changed: DialogChanged) -> None:
        if device_key(changed.user, changed.device) in self._state.devices:
            record = records.DialogStored(
                at_us=self._state.wall_us,
                user=changed.user,
                device=changed.device,
                address=changed.address,
                binding=changed.binding,
            )
            self._journal.write(record, urgent=False)
