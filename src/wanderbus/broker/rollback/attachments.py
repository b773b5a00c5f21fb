"""Attachments: a device joins a session on a new link, and says what it knows of it (SPEC G-09, X20)."""

from __future__ import annotations

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.publish.former_servers import FormerServers
from wanderbus.broker.readers import Link
from wanderbus.broker.rollback.rollback import Rollback, attachment_of
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.sessions.handover import Handover
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.sessions.turned_away import moved
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions


class Attachments:
    """Takes the first message of each link."""

    def __init__(
        self,
        basics: Basics,
        presence: Presence,
        ends: SessionEnds,
        handover: Handover,
        rollback: Rollback,
        filters: PublisherFilters,
        subscriptions: Subscriptions,
        advertisements: Advertisements,
        former: FormerServers,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._queue_limits = basics.queue_limits
        self._presence = presence
        self._ends = ends
        self._handover = handover
        self._rollback = rollback
        self._filters = filters
        self._subscriptions = subscriptions
        self._advertisements = advertisements
        self._former = former

    def attach(self, link: Link, message: protocol.Attach) -> None:
        """Join the session, or refuse; what the device knows of the session and the log is compared with them."""
        if refusal := (
            self._attach_refusal(link, message.session)
            or self._presence.twin_refusal(link, message.epoch)
            or self._presence.make_room(link, message.session)
        ):
            self._links.send(link, refusal)
            return
        removed = self._presence.reason_of_removal(link)
        former = self._state.sessions.get(session_key(link.user, self._state.devices[link.key].session))
        attached = records.Attached(
            at_us=self._state.wall_us,
            user=link.user,
            session=message.session,
            device=link.device,
            epoch=message.epoch,
            redelivered=() if message.resume else self._links.may_have_seen(link, message.session),
            taken=() if message.resume else self._links.taken_by_others(link, message.session),
            filter_lease_s=self._filters.lease_mark_s(link, is_filtering=message.is_filtering),
        )
        self._journal.write(attached, urgent=True)
        session = self._state.sessions[session_key(link.user, message.session)]
        self._rollback.check(link, session, (message.resume, message.received))
        self._rollback.check_ids(link, session, message.seen)
        self._links.begin(link, session, message.resume, is_first=message.received is None)
        if not message.keep:
            self._discard(link, session, keep_queue=message.keep_queue)
        self._links.attach(link, session)
        self._filters.attached(link, message.epoch)
        link.knows_waits = message.knows_waits
        place = self._former.attached(link, self._state.devices[link.key].gone_to or message.was_at)
        self._links.send(link, attachment_of(self._state, link, session, self._links.event_bytes_max, removed, place))
        if link.unattended or link.reads_whole:
            self._links.notify(session, ())
        self._presence.moved(link, former, session)

    def _discard(self, link: Link, session: SessionRow, *, keep_queue: bool) -> None:
        """End the session's subscriptions, and advertisements and notifications of this device (SPEC G-09, X20)."""
        self._subscriptions.discard(link.user, session.name, link.device, keep_queue=keep_queue)
        self._advertisements.discard(link.user, link.device)
        if not keep_queue:
            self._queue_limits.discard(session, link.device)
            self._links.acknowledge(session, link.device, session.next - 1)

    def _attach_refusal(self, link: Link, name: str) -> protocol.RequestRefused | None:
        """Return why this link cannot join the session ``name`` even if there is room, or None if it can."""
        if not protocol.SESSION_NAME.fullmatch(name):
            reason = "a session's name has 1 to 64 letters, digits, dots, dashes or underscores"
            return protocol.RequestRefused(0, reason)
        key = session_key(link.user, name)
        if (awaited := self._state.awaited.get(key)) is not None:
            reason = f"the session {name!r} is on its way from {awaited.source}; call again"
            return protocol.RequestRefused(0, reason, limit=protocol.SESSION_MOVED)
        session = self._state.sessions.get(key)
        if session is not None and (session.is_fenced or self._handover.is_leaving(session)):
            return moved(session)
        return None
