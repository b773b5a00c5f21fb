"""Messages of agents: each goes to the part that serves it."""

from __future__ import annotations

from typing import Final

from wanderbus import protocol
from wanderbus.broker.admin import Admin
from wanderbus.broker.backlog import LinkMessages
from wanderbus.broker.basics import Basics
from wanderbus.broker.groups.groups import Groups
from wanderbus.broker.history.channel_history import ChannelHistory
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import LinkDropped
from wanderbus.broker.publish.acceptance import DISK_FULL
from wanderbus.broker.publish.held_publishes import PublisherMessage
from wanderbus.broker.publish.publishing import Publishing
from wanderbus.broker.readers import Link
from wanderbus.broker.rollback.rollback import Rollback
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.sessions.devices import Devices
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.subscribe_pacing import SubscribePacing
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.errors import RemoteProtocolError
from wanderbus.protocol.domains import GroupPrepared, GroupPublishersKnown

PREMATCHED_MAX: Final = 1_024
"""Messages that are searched for publishes to match in one batch; this batch size costs least for each event."""

_REFUSED_WHEN_FULL: Final = (protocol.Subscribe, protocol.Restrict, protocol.Advertise, protocol.ImportSession)
"""Requests that are refused while the disk is full."""


_OF_FOREIGN: Final = (
    protocol.Attach,
    protocol.Subscribe,
    protocol.Unsubscribe,
    protocol.Query,
    protocol.NotifyAck,
    protocol.Leave,
)
"""Messages of a foreign domain, besides the publishes of its own users."""


class AgentMessages:
    """Serves the messages on links one by one, in their order."""

    def __init__(
        self,
        basics: Basics,
        publishing: Publishing,
        subscriptions: Subscriptions,
        devices: Devices,
        admin: Admin,
        history: ChannelHistory,
        filters: PublisherFilters,
        advertisements: Advertisements,
        rollback: Rollback,
        groups: Groups,
    ) -> None:
        self.pacing = SubscribePacing(basics, self._answer)
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._conditions = basics.conditions
        self._publishing = publishing
        self._subscriptions = subscriptions
        self._devices = devices
        self._admin = admin
        self._history = history
        self._filters = filters
        self._advertisements = advertisements
        self._rollback = rollback
        self._groups = groups

    def prematch(self, messages: LinkMessages, place: int) -> int:
        """Match the publishes from ``place`` on; return the place from which this has to be done again.

        That place is before the first message that may add a subscription. Without messages, discard the results.
        """
        if not messages:
            self._subscriptions.matcher.prematch(())
            return 0
        end = min(len(messages), place + PREMATCHED_MAX)
        publishes: list[tuple[Link, PublisherMessage]] = []
        for at in range(place, end):
            identity, message = messages[at]
            if type(message) is protocol.Publish or type(message) is protocol.PublishFor:
                if link := self._links.get(identity):
                    publishes.append((link, message))
            elif isinstance(message, protocol.Subscribe | protocol.Renew | protocol.ImportSession):
                end = at
                break
        if len(publishes) > 1:
            self._publishing.prematch(publishes)
        return end

    def serve(self, link: Link, message: protocol.FromAgent | RemoteProtocolError) -> None:
        """Serve one message; a malformed one closes the link."""
        if isinstance(message, RemoteProtocolError):
            self._devices.presence.closed(link, str(message))
            return
        if link.session is None:
            if isinstance(message, protocol.Attach):
                self._groups.greet(link)  # before the events of these groups
                self._devices.attach(link, message)
                self._groups.attached(link)
            return
        match message:
            case _ if link.is_foreign and not _may_send(link, message):
                reason = f"another domain may subscribe and publish for {link.user}, and nothing else"
                self._devices.presence.closed(link, reason)
                self._journal.emit(LinkDropped(link.link, reason))
            case _ if isinstance(message, protocol.PublishFor | protocol.ServerMessage) and not link.reads_whole:
                self._devices.presence.closed(link, "only a server of the domain may speak for others")
            case protocol.Publish() | protocol.PublishFor():
                self._publishing.publish(link, message)
            case protocol.SettleInterest():
                self._publishing.settle(link)
            case GroupPrepared() | GroupPublishersKnown():
                self._groups.take(link, message)
            case protocol.NotifyAck():
                self._links.take(link, message.reader, message.number)
            case protocol.StopReading(reader=handle):
                self._links.stop_reading(link, handle)
            case protocol.Read(readers=readers):
                session = self._state.sessions[session_key(link.user, link.session)]
                self._rollback.check(link, session, [reader.taken for reader in readers])
                for reader in readers:
                    self._subscriptions.read(link, reader.handle, reader.subscription, reader.taken, reader.group)
                self._devices.transfers.opened(link)
            case protocol.ImportSession():
                self.pacing.take(link, message)
            case protocol.Leave(request=request):
                self._devices.presence.leave(link, link.session, request)
            case _ if isinstance(message, protocol.OperatorRequest | protocol.AwaitTransfer):
                self._admin.answer(link, message)
            case protocol.ListEvents():
                self._history.ask(link, message)
            case protocol.RequestFilters() | protocol.ConfirmFilters() | protocol.ReleaseFilters():
                self._filters.take(link, message)
            case protocol.Attach():
                pass  # the link is attached already
            case _:
                self.pacing.take(link, message)

    def _answer(self, link: Link, request: protocol.PacedRequest) -> None:
        if self._conditions.is_disk_full and isinstance(request, _REFUSED_WHEN_FULL):
            self._links.send(link, protocol.RequestRefused(request.request, DISK_FULL, limit="disk_full"))
            return
        match request:
            case protocol.Advertise() | protocol.Withdraw():
                self._advertisements.answer(link, request)
            case protocol.ImportSession():
                self._admin.answer(link, request)
            case _:
                self._subscriptions.answer(link, request)
                if isinstance(request, protocol.Subscribe) and request.resume is not None:
                    session = self._state.sessions[session_key(link.user, link.session or "")]
                    self._rollback.check(link, session, [request.resume])


def _may_send(link: Link, message: protocol.FromAgent) -> bool:
    """Return whether a foreign domain may send a message: it speaks for itself alone."""
    if isinstance(message, protocol.PublishFor):
        return message.user == link.user and message.is_outbox
    return isinstance(message, _OF_FOREIGN)
