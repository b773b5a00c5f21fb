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
from wanderbus.broker.readers import Link
from wanderbus.broker.rollback.attachments import Attachments
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.sessions.awaited_sessions import AfterPast, AwaitedSessions
from wanderbus.broker.sessions.handover import Handover
from wanderbus.broker.sessions.handover_messages import (
    AwaitSession,
    DropExport,
    FenceSession,
    ForgetAwaited,
    HeadWanted,
    ImportSession,
    KeepSession,
    UserUnowned,
)
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.sessions.turned_away import TurnedAway
from wanderbus.broker.sessions.unread_warnings import UnreadWarnings
from wanderbus.broker.signals import OfDevices
from wanderbus.broker.state.rows import device_key
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
    ) -> None:
        self.ends = SessionEnds(basics, subscriptions, engine)
        self.presence = Presence(basics, hook, self.ends)
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._messages = messages
        self._settled = settled
        self._interest = interest
        turned_away = TurnedAway(basics, self.presence, messages)
        self._handover = Handover(basics, subscriptions, turned_away, engine, matched)
        self._awaited = AwaitedSessions(
            basics, self.presence, subscriptions, interest, filters, turned_away, after_past
        )
        self._attachments = Attachments(
            basics, self.presence, self.ends, self._handover, rollback, filters, subscriptions, advertisements
        )
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
            case HeadWanted():
                self._handover.head(given)
            case FenceSession():
                self._handover.fence(given)
            case KeepSession():
                self._handover.keep(given)
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

    def attach(self, link: Link, message: protocol.Attach) -> None:
        """Take the first message of a link."""
        self._attachments.attach(link, message)

    def go_on(self) -> None:
        """Hand over the sessions for which everything is here now."""
        self._handover.go_on()

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
