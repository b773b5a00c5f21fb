"""Administration requests: list, peek, purge, kick, and schemas of subjects (SPEC U, E-01, G-08, G-21, T-03).

A user lists, peeks into and purges their own sessions, and kicks their own devices. The role ``operator`` also sees the
sessions of others and the schemas, and ``administrator`` also changes them. A refusal names the role that is needed,
and does not disclose whether the user exists. Each request makes the broker look at a bounded part: the client
continues from where an answer ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from heapq import nsmallest
from itertools import chain, islice
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from wanderbus import protocol, records
from wanderbus.broker import admission
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.requests import EngineRequests
from wanderbus.broker.groups.groups import Groups
from wanderbus.broker.interest.phase_counts import PhaseCounts
from wanderbus.broker.listings import ANSWER_BYTES_MAX, ROWS_MAX, Listings, Row, encoded_row, listing
from wanderbus.broker.messages import LinkDropped, ServerAnswered, ServerAsked
from wanderbus.broker.queues.queue_items import Queued
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.route_rows import advertisement_rows, route_rows
from wanderbus.broker.sessions.devices import Devices
from wanderbus.broker.sessions.drain import Drain
from wanderbus.broker.sessions.handover_messages import MoveSession, SessionMoveEnded
from wanderbus.broker.state.rows import SessionRow, device_key, session_key
from wanderbus.errors import FilterError, LimitExceeded, Refused
from wanderbus.limits import EVENT_NAME_CHARACTERS_MAX
from wanderbus.subject_schemas import next_attributes
from wanderbus.subscription import check_wanted_subject

LOOKED_AT_MAX: Final = 1_000
"""Sessions and rows that one answer looks at."""

PURGED_MAX: Final = 1_000
"""Notifications and gaps that one step of a purge looks at."""

_number = attrgetter("number")

OF_SERVER: Final = ("limits", "bounds", "servers", "server", "domains", "metrics")
"""Listings of the whole server; the broker alone cannot answer them."""

_OF_BROKER: Final = {
    "engine": "figures of the matching engine",
    "filtering": "the counts of filtering",
    "routes": "the filters of other servers",
    "advertisements": "all advertisements",
    "groups": "channel groups",
    "loads": "loads of channel groups",
}
"""Listings of the whole broker, and what they show."""

_CHANGES: Final = (
    protocol.Purge,
    protocol.Kick,
    protocol.MoveSession,
    protocol.MoveGroup,
    protocol.ImportSession,
    protocol.TransferSession,
    protocol.DeclareSchema,
)
"""Requests that need the role ``administrator`` for what is not one's own."""

Found: TypeAlias = Iterable[tuple[Row | None, str]]
"""A row, or None for an item without a row, and the place from which to continue behind it."""


class Admin:
    """Answers administration requests of authenticated users."""

    def __init__(
        self,
        basics: Basics,
        devices: Devices,
        engine: EngineRequests,
        phases: PhaseCounts,
        groups: Groups,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._presence = devices.presence
        self._ends = devices.ends
        self._copies = devices.copies
        self._transfers = devices.transfers
        self._engine = engine
        self._phases = phases
        self._groups = groups
        self._channels = basics.channels
        self._servers = basics.servers
        self._drain = Drain(basics)
        self._roles = basics.config.roles
        self._is_federated = basics.config.federated
        self._domain = basics.config.domain
        self._listings = Listings(basics.state, basics.links, basics.config)
        self._moves: dict[tuple[str, str], tuple[Link, protocol.MoveSession]] = {}
        """The request that waits for the move of each session."""
        self._life = str(basics.state.offset)
        """Name of this life of the broker: a queue keeps its numbers, and a listing its order, within one life."""

    def answer(self, link: Link, request: protocol.OperatorRequest | protocol.AwaitTransfer) -> None:
        """Serve one request; the answer is sent once the change is durable."""
        try:
            if isinstance(request, protocol.AwaitTransfer):
                self._transfers.wait(link, request)
                return
            if not (link.is_server and isinstance(request, protocol.MoveGroup)):  # its server has checked it
                self._check_role(link.user, request)
            match request:
                case protocol.Inspect():
                    self._inspect(link, request)
                case protocol.Peek():
                    self._peek(link, request)
                case protocol.Purge():
                    self._purge(link, request)
                case protocol.Kick():
                    self._kick(link, request)
                case protocol.MoveSession():
                    self._move(link, request)
                case protocol.ImportSession():
                    self._copies.take(link, request)
                case protocol.TransferSession():
                    self._transfers.begin(link, request)
                case protocol.MoveGroup():
                    self._groups.move(link, request)
                case protocol.Drain():
                    self._drain.answer(link, request)
                case protocol.DeclareSchema():
                    self._declare_schema(link, request)
                case protocol.ListSchemas():
                    self._list_schemas(link, request)
        except (FilterError, LimitExceeded, Refused) as error:
            self._links.send(link, admission.refusal(request.request, error))

    def _check_role(self, asker: str, request: protocol.OperatorRequest) -> None:
        """Raise :class:`Refused` if ``asker`` lacks the role for this request about another user or about schemas."""
        changes = isinstance(request, _CHANGES) or (isinstance(request, protocol.Drain) and request.on is not None)
        role = self._roles.get(asker)
        if role == "administrator" or (role == "operator" and not changes):
            return
        needed = "'administrator'" if changes else "'operator' or 'administrator'"
        if isinstance(request, protocol.SchemaRequest):
            raise Refused(f"{asker} may not do that; schemas of subjects need the role {needed}")
        if isinstance(request, protocol.Drain | protocol.MoveGroup):
            what = "a drain" if isinstance(request, protocol.Drain) else "a move of a channel group"
            raise Refused(f"{asker} may not do that; {what} needs the role {needed}")
        if request.user not in (None, asker):
            raise Refused(f"{asker} may do that with their own sessions; those of others need the role {needed}")

    # Seeing -----------------------------------------------------------------------------------------------------

    def _inspect(self, link: Link, request: protocol.Inspect) -> None:
        _check_count("limit", request.limit)
        if request.what in _OF_BROKER:
            self._list_of_broker(link, request)
            return
        if request.what in OF_SERVER:
            self._journal.emit(ServerAsked(link.link, request))
            return
        key, after = _session_place(request.after)
        user = request.user if link.user in self._roles else link.user
        self._list(link, request.request, self._found(request.what, user, key, after), request.limit)

    def _list_of_broker(self, link: Link, request: protocol.Inspect) -> None:
        if link.user not in self._roles:
            raise Refused(f"{link.user} may not do that; {_OF_BROKER[request.what]} need the role 'operator'")
        place, _ = self._place(request.after)
        rows = enumerate(islice(self._of_broker(request.what), place, None), place + 1)
        self._list(
            link, request.request, ((row, self._behind(next_place, "")) for next_place, row in rows), request.limit
        )

    def _of_broker(self, what: protocol.Listed) -> Iterable[Row]:
        match what:
            case "engine":
                return [] if (row := self._engine.row()) is None else [row]
            case "routes":
                return route_rows(self._state.decentralised.routes)
            case "advertisements":
                return advertisement_rows(self._state.advertisements.values())
            case "groups":
                return self._groups.rows()
            case "loads":
                return self._groups.loads.rows()
            case _:
                return self._phases.rows()

    def server_answered(self, answered: ServerAnswered) -> None:
        """Answer a request for a listing of the whole server: all but the user's own limits needs a role."""
        asked, request = answered.asked, answered.asked.request
        link = self._links.get(asked.link)
        if link is None:
            return
        try:
            _, after = self._place(request.after)
            if link.user not in self._roles and request.what != "limits":
                raise Refused(f"{link.user} may list limits only; {request.what} need the role 'operator'")
        except Refused as error:
            self._links.send(link, protocol.RequestRefused(request.request, protocol.shortened(error)))
            return
        own = link.user if link.user not in self._roles else request.user
        parties = None if own is None else {own, *(asked.sources if own == link.user else ())}
        rows = sorted(answered.rows, key=_key)
        shown = (row for row in rows if _key(row) > after and (parties is None or row.get("party") in parties))
        self._list(link, request.request, ((row, self._behind(0, _key(row))) for row in shown), request.limit)

    def _found(self, what: protocol.Listed, user: str | None, start: str, after: int | None) -> Found:
        """Yield the rows of the sessions in the order of their keys, of one user or of all.

        Sessions that have moved to another server have none. The rows begin behind the session with the key
        ``start``, or with its subscriptions behind number ``after``.
        Sessions and subscriptions are removed at any time, so the cursor has a key and a number.
        """
        for key in self._session_keys(user, start, is_inside=after is not None):
            behind = _behind_session(key)
            if (session := self._state.sessions.get(key)) is None:
                yield self._listings.past_sessions(key.removesuffix("/")) if what == "sessions" else None, behind
                continue
            if session.is_fenced:
                yield None, behind
                continue
            match what:
                case "sessions":
                    yield self._listings.session(session), behind
                case "queues":
                    yield self._listings.queue(session), behind
                case "subscriptions":
                    rows = [self._state.subscriptions[identity] for identity in session.subscriptions]
                    seen = after if key == start and after is not None else 0
                    for row in rows[bisect_right(rows, seen, key=_number) :]:
                        yield self._listings.subscription(row), _behind_session(key, row.number)
                    yield None, behind

    def _session_keys(self, user: str | None, start: str, *, is_inside: bool) -> list[str]:
        """Return the next keys of sessions, and the key of each user's sessions that are over: one without a name."""
        state = self._state
        users = state.former if user is None else [each for each in (user,) if each in state.former]
        past = (session_key(each, "") for each in users if state.former[each].sessions is not None)
        sessions = state.sessions if user is None else (each.key for each in state.sessions_of(user))
        keys = (key for key in chain(past, sessions) if key > start or (is_inside and key == start))
        return nsmallest(LOOKED_AT_MAX + 1, keys)

    def _peek(self, link: Link, request: protocol.Peek) -> None:
        _check_count("count", request.count)
        session = self._session(request)
        self._check_subscription(session, request.subscription)
        waiting = self._listings.waiting(session, request.first, request.subscription)
        self._list(link, request.request, ((row, str(row["first"] + 1)) for row in waiting), request.count)

    def _list_schemas(self, link: Link, request: protocol.ListSchemas) -> None:
        _check_count("limit", request.limit)
        place, _ = self._place(request.after)
        self._list(link, request.request, self._schemas(request, place), request.limit)

    def _schemas(self, request: protocol.ListSchemas, start: int) -> Found:
        schemas = self._state.schemas
        for place, schema in enumerate(islice(schemas.versions(request.subject), start, None), start + 1):
            is_wanted = request.every_version or schema is schemas.newest(schema.subject)
            yield msgspec.structs.asdict(schema) if is_wanted else None, self._behind(place, "")

    def _list(self, link: Link, request: int, found: Found, limit: int) -> None:
        """Send the rows that fit one answer."""
        rows: list[bytes] = []
        answer_bytes = 0
        behind = after = None
        for looked_at, (row, after) in enumerate(found):
            if len(rows) == min(limit, ROWS_MAX) or answer_bytes > ANSWER_BYTES_MAX or looked_at == LOOKED_AT_MAX:
                break
            behind = after
            if row is not None:
                rows.append(encoded_row(row, self._links.event_bytes_max))
                answer_bytes += len(rows[-1])
        else:
            behind = None
        for message in listing(request, rows, behind):
            self._links.send(link, message)

    # Changing ---------------------------------------------------------------------------------------------------

    def _purge(self, link: Link, request: protocol.Purge) -> None:
        """Drop one step of the notifications that waited when the purge began; the row counts the matches."""
        session = self._session(request)
        self._check_subscription(session, request.subscription)
        if session.source:
            raise Refused(
                f"the rest of the queue of the session {session.name!r} is on its way here from {session.source}; "
                "try again later"
            )
        first, through = self._place(request.after)
        last = int(through) if _is_number(through) else session.next - 1
        purged = session.dropped.get("purged", 0)
        behind = self._drop(session, first, last, request.subscription)
        purged = session.dropped.get("purged", 0) - purged
        after = None if behind > last else self._behind(behind, str(last))
        if after is None and request.subscription is None:
            self._ends.remove(session)
        self._links.send(link, protocol.Listing(request.request, ({"purged": purged},), next=after))

    def _drop(self, session: SessionRow, first: int, last: int, subscription: str | None) -> int:
        """Drop the notifications from ``first`` up to ``last``, or a part of them; return the number behind it."""
        queue = self._state.queue.get(session.key)
        found, looked_at = set[str](), 0
        for group in () if queue is None else queue.items_from(first, subscription):
            if group[0][1].number > last:
                break
            if looked_at >= PURGED_MAX:
                last = group[0][1].number - 1
                break
            looked_at += len(group)
            found.update(identity for identity, item in group if isinstance(item, Queued))
        if found:
            dropped = records.Dropped(
                at_us=self._state.wall_us,
                user=session.user,
                session=session.name,
                first=first,
                last=last,
                reason="purged",
                subscriptions=() if subscription is None else (subscription,),
            )
            self._journal.write(dropped, urgent=True)
        return last + 1

    def _kick(self, link: Link, request: protocol.Kick) -> None:
        """End connections; what the devices have not acknowledged stays in the queue of their session.

        The connection of the device that asks is not ended, because it would repeat its request until it is answered.
        """
        own = link.device if link.user == request.user else None
        if own is not None and request.device == own:
            raise Refused("a device cannot remove itself; let its agent leave the session")
        devices = self._devices(request.user) if request.device is None else [request.device]
        rows, links = [], []
        for device in devices:
            if device == own:
                continue
            open_link = self._links.of_device(request.user, device)
            known = self._state.devices.get(device_key(request.user, device))
            if open_link is None and known is None:
                raise Refused(f"{request.user} has no device {device!r}; list the sessions")
            if open_link is not None:
                self._presence.closed(open_link, "kicked")
                links.append(open_link.link)
            if known is not None and known.session and request.forget:
                self._presence.left(request.user, known.session, device, "kicked")
            rows.append({"device": device, "connected": open_link is not None, "forgotten": request.forget})
        self._links.send(link, protocol.Listing(request.request, tuple(rows)))
        for identity in links:
            self._journal.emit(LinkDropped(identity, "kicked"))

    def _move(self, link: Link, request: protocol.MoveSession) -> None:
        """Move a session to another server; the answer is sent when that has ended.

        It is sent to who asks again, if the link of the former request has been closed meanwhile. A device of the
        session asks again at the server to which it has moved.
        """
        if self._channels is None and not self._is_federated:
            raise Refused("this server is alone, a session cannot move to another one")
        if self._servers.reserves(request.user):
            raise Refused(f"{request.user} is reserved; its session stays at each server")
        here = self._state.sessions.get(session_key(request.user, request.session))
        target = self._target(request.server)
        if not target and here is not None and not here.is_fenced:
            row = {"user": request.user, "session": request.session, "server": request.server}
            self._links.send(link, protocol.Listing(request.request, (row,)))
            return
        key = request.user, request.session
        asker, former = self._moves.get(key, (None, request))
        if former.server != request.server or (asker is not None and self._links.is_open(asker)):
            raise Refused(f"the session {request.session!r} of {request.user} is on its way to {former.server} already")
        self._moves[key] = link, request
        if asker is None:
            cause = "user" if link.user == request.user else "asked"
            self._journal.emit(MoveSession(request.user, request.session, target or request.server, cause))

    def _target(self, name: str) -> str:
        """Return a target of a move as servers here name it, "" for this one; it may be named with its domain."""
        domain, _, server = name.partition("/")
        own = "" if self._channels is None else self._channels.server
        if self._domain and domain == self._domain:
            return "" if own in ("", server) or not server else server
        return "" if name == own else name

    def move_ended(self, ended: SessionMoveEnded) -> None:
        """Answer the request for a move."""
        self._drain.move_ended(ended)
        waiting = self._moves.pop((ended.user, ended.session), None)
        if waiting is None or not self._links.is_open(waiting[0]):
            return
        link, request = waiting
        if ended.reason:
            self._links.send(link, protocol.RequestRefused(request.request, protocol.shortened(ended.reason)))
        else:
            row = {"user": ended.user, "session": ended.session, "server": ended.target}
            self._links.send(link, protocol.Listing(request.request, (row,)))

    def _devices(self, user: str) -> list[str]:
        members = (device for session in self._state.sessions_of(user) for device in session.devices)
        connected = (link.device for link in self._links.of_user(user))
        return list(dict.fromkeys((*members, *connected)))

    def _declare_schema(self, link: Link, request: protocol.DeclareSchema) -> None:
        """Record a version if the attributes differ from those of the newest one, so a repeated request adds none."""
        subject, schemas = request.subject, self._state.schemas
        if not 0 < len(subject) <= EVENT_NAME_CHARACTERS_MAX:
            raise Refused(f"a subject has 1 to {EVENT_NAME_CHARACTERS_MAX} characters, not {len(subject)}")
        check_wanted_subject(subject)
        newest = schemas.newest(subject)
        declared = () if newest is None else newest.attributes
        try:
            attributes = next_attributes(declared, request.attributes)
        except ValueError as error:
            raise Refused(f"the schema of {subject!r} cannot be declared: {error}") from None
        if attributes != declared:
            record = records.SchemaDeclared(
                at_us=self._state.wall_us,
                subject=subject,
                version=1 if newest is None else newest.version + 1,
                attributes=attributes,
                by=link.user,
            )
            self._journal.write(record, urgent=True)
        row = msgspec.structs.asdict(schemas.versions(subject)[-1])
        self._list(link, request.request, [(row, "")], limit=1)

    # Places -----------------------------------------------------------------------------------------------------

    def _session(self, request: protocol.Peek | protocol.Purge) -> SessionRow:
        session = self._state.sessions.get(session_key(request.user, request.session))
        if session is not None and session.has_left_domain:
            raise Refused(f"the session {request.session!r} of {request.user} has moved to {session.next_owner}")
        if session is None or session.name != request.session or session.is_fenced:
            raise Refused(f"{request.user} has no session {request.session!r}; list the sessions")
        return session

    def _check_subscription(self, session: SessionRow, identity: str | None) -> None:
        if identity is None:
            return
        row = self._state.known(identity)
        if row is None or (row.subscription.owner, row.subscription.session) != (session.user, session.name):
            raise Refused(f"the session has no subscription {identity!r}; list the subscriptions")

    def _behind(self, place: int, within: str) -> str:
        """Return the opaque cursor with which a client continues from there."""
        return f"{self._life}.{place}.{within}"

    def _place(self, after: str | None) -> tuple[int, str]:
        """Return the place and the rest in a cursor of :meth:`_behind`."""
        if after is None:
            return 0, ""
        life, _, rest = after.partition(".")
        place, _, within = rest.partition(".")
        if life != self._life or not _is_number(place):
            raise Refused("the cursor is invalid, or the broker was restarted since; begin again")
        return int(place), within


def _behind_session(key: str, number: int | None = None) -> str:
    """Return the cursor behind a session, or behind the subscription ``number`` in it."""
    return f"{'' if number is None else number}/{key}"


def _session_place(after: str | None) -> tuple[str, int | None]:
    """Return the key and the number in a cursor of :func:`_behind_session`."""
    number, separator, key = (after or "/").partition("/")
    if not separator or not (number == "" or _is_number(number)):
        raise Refused("the cursor is invalid; begin again")
    return key, int(number) if number else None


def _key(row: Row) -> str:
    """Return the sort key of rows about the whole server."""
    labels = " ".join(row.get("labels", ()))
    return f"{row.get('limit', '')} {row.get('party', '')}{row.get('server', '')}{row.get('metric', '')} {labels}"


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise Refused(f"{name} is {count}; ask for 1 or more")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
