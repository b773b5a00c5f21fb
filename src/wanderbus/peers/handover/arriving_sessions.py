"""Sessions that come from another server: awaited, taken over, and reported to the source (SPEC L-02 to L-04)."""

from __future__ import annotations

from collections.abc import Callable, Container, Set
from functools import partial
from typing import Final

from wanderbus.broker.queues.left_queue import is_sound, subscriptions_of
from wanderbus.broker.queues.stored_blocks import QueuePiece
from wanderbus.broker.sessions.handover_messages import (
    AwaitedEffective,
    AwaitSession,
    ContinueQueue,
    ForgetAwaited,
    ImportSession,
    QueueReached,
    SessionMoveRefused,
    SessionOwned,
)
from wanderbus.broker.sessions.sound_export import is_sound_export
from wanderbus.broker.state.exported_session import decode_export, decode_piece
from wanderbus.broker.state.rows import session_key, session_of
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import RemoteProtocolError
from wanderbus.peers.far_servers import FIRST_FAR_LINK
from wanderbus.peers.handover.far_export import are_far, comes_from
from wanderbus.peers.handover.far_moves import FarMoves
from wanderbus.peers.handover.far_wants import wanted_of
from wanderbus.peers.handover.leaving_sessions import MOVES_MAX
from wanderbus.peers.handover.messages import (
    VERSION,
    Message,
    Move,
    MoveAwaited,
    MoveReady,
    MoveRefused,
    MoveTaken,
    MoveWithdrawn,
    Part,
    RestWanted,
    WantedOf,
    decode_offer,
    encode,
)
from wanderbus.peers.messages import SendOnServerLink
from wanderbus.peers.open_links import OpenLinks

ARRIVING_BYTES_MAX: Final = 256 * 2**20
"""Largest size of an offer, an export, or a piece of a queue."""

FAR_BYTES_MAX: Final = 16 * 2**20
"""Largest size of the same from another domain."""

FAR_MOVES_MAX: Final = 128
"""Largest number of sessions of one foreign domain that are awaited at once."""

FAR_WANTED_MAX: Final = 2_048
"""Largest number of filters of a session for types that come from other domains."""

AWAITED_USERS_MAX: Final = 256
"""Users whose sessions have come and whose first device is reported to the source: the last ones."""

ArrivingOutput = SendOnServerLink | AwaitSession | ForgetAwaited | ImportSession | ContinueQueue


class _Incomplete:
    """Offer or export whose last part has not come."""

    def __init__(self, first: Part) -> None:
        self.what = first.move, first.what
        self.parts = 0
        self.data = bytearray()


class ArrivingSessions:
    """The part of the target in moves of sessions; ``emit`` takes its outputs.

    :param leaving: sessions that are on their way from this server: none of the same user and name comes meanwhile
    :param serves: whether this server serves devices
    """

    def __init__(
        self,
        state: BrokerState,
        links: OpenLinks,
        leaving: Container[tuple[str, str]],
        emit: Callable[[ArrivingOutput], None],
        far: FarMoves,
        reserves: Callable[[str], bool],
        *,
        serves: bool = True,
    ) -> None:
        self._serves = serves
        self._state = state
        self._far = far
        self._reserves = reserves
        self._leaving = leaving
        self._links = links
        self._emit = emit
        self._sources: dict[tuple[str, str], tuple[str, Move]] = {}
        """Source and move of each session that is about to be awaited or imported."""
        self._incomplete: dict[int, _Incomplete] = {}
        """Parts that each link has brought; a source sends the parts of one offer or export after the other."""
        self._users: dict[str, tuple[str, Move]] = {}
        """Source and move of the session that has come last, of users whose devices have not come since."""

    def moving(self) -> dict[str, list[int]]:
        """Return the owner epochs of the sessions that are awaited from each server, or their queues."""
        found: dict[str, list[int]] = {}
        for row in self._state.awaited.values():
            found.setdefault(row.source, []).append(row.owner_epoch)
        for session in self._state.sessions.values():
            if session.source:
                found.setdefault(session.source, []).append(session.owner_epoch)
        return found

    # The broker --------------------------------------------------------------------------------------------------

    def effective(self, effective: AwaitedEffective) -> None:
        """Tell the source that every event for the session reaches this server."""
        key = effective.user, effective.session
        source, _ = self._sources.get(key, ("", None))
        awaited = self._state.awaited.get(session_key(*key))
        wanted: tuple[WantedOf, ...] = ()
        if awaited is not None and "/" in source:
            wanted = wanted_of(self._far.domains, awaited.subscriptions)
            if sum(len(each.filters) for each in wanted) > FAR_WANTED_MAX:
                self._far_refused(
                    key, f"it has more than {FAR_WANTED_MAX} filters of types that come from other domains"
                )
                return
        self._answer(key, effective.owner_epoch, partial(MoveReady, version=VERSION, wanted=wanted))

    def owned(self, owned: SessionOwned) -> None:
        """Tell the source that the session is here."""
        key = owned.user, owned.session
        self._answer(key, owned.owner_epoch, MoveTaken)
        self._sources.pop(key, None)

    def reached(self, reached: QueueReached) -> None:
        """Tell the source how much of the session is here."""
        source, move = self._sources.get((reached.user, reached.session), ("", None))
        if move is not None and move.owner_epoch == reached.owner_epoch:
            self._send(source, RestWanted(move, reached.through))

    def located(self, user: str) -> None:
        """Tell the source that a device has followed its session."""
        if (found := self._users.pop(user, None)) is not None:
            source, move = found
            self._send(source, MoveTaken(move, has_come=True))

    def refused(self, refused: SessionMoveRefused) -> None:
        """Tell the source that the session cannot come here."""
        if (found := self._sources.pop((refused.user, refused.session), None)) is not None:
            source, move = found
            self._send(source, MoveRefused(move, refused.reason[:1_024]))

    def _far_refused(self, key: tuple[str, str], reason: str) -> None:
        """Refuse a session of another domain that is awaited already."""
        self._emit(ForgetAwaited(*key))
        if (found := self._sources.pop(key, None)) is not None:
            self._send(found[0], MoveRefused(found[1], reason))

    def _answer(self, key: tuple[str, str], owner_epoch: int, answer: Callable[[Move], Message]) -> None:
        source, move = self._sources.get(key, ("", None))
        if move is not None and move.owner_epoch == owner_epoch:
            self._send(source, answer(move))

    # Other servers -----------------------------------------------------------------------------------------------

    def link_opened(self, server: str) -> None:
        """Ask what has become of the sessions that are awaited from ``server``."""
        for key, row in self._state.awaited.items():
            if row.source == server:
                self._send(server, MoveAwaited(Move(*session_of(key), row.owner_epoch)))

    def link_closed(self, link: int) -> None:
        """Forget what was not complete on a link: it comes again on another one."""
        self._incomplete.pop(link, None)

    def received(self, link: int, server: str, message: Part | MoveWithdrawn) -> None:
        """Take a message of a source; raise :class:`RemoteProtocolError` if it is not what a source sends."""
        move = message.move
        if isinstance(message, MoveWithdrawn):
            awaited = self._state.awaited.get(session_key(*move.key))
            if awaited is not None and (awaited.source, awaited.owner_epoch) == (server, move.owner_epoch):
                self._sources.pop(move.key, None)
                self._emit(ForgetAwaited(*move.key))
        elif (data := self._complete(link, message)) is not None:
            if message.what == "offer":
                self._await(server, move, data)
            elif message.what == "export":
                self._import(server, move, data)
            else:
                self._continue(server, move, data)

    def _complete(self, link: int, part: Part) -> bytes | None:
        """Add a part to those before it; return all of them behind the last one."""
        if part.number == 0:
            self._incomplete[link] = _Incomplete(part)
        incomplete = self._incomplete.get(link)
        if incomplete is None or (incomplete.what, incomplete.parts) != ((part.move, part.what), part.number):
            raise RemoteProtocolError(f"part {part.number} of a session does not follow the part before it", None)
        incomplete.parts += 1
        incomplete.data += part.data
        most = FAR_BYTES_MAX if link >= FIRST_FAR_LINK else ARRIVING_BYTES_MAX
        if len(incomplete.data) > most:
            raise RemoteProtocolError(f"a session has more than {most} bytes", None)
        if not part.is_last:
            return None
        del self._incomplete[link]
        return bytes(incomplete.data)

    def _await(self, server: str, move: Move, data: bytes) -> None:
        offered = decode_offer(data)
        is_own = all((each.owner, each.session) == move.key for each in offered)
        if not is_own or self._are_foreign({each.id for each in offered}, move):
            raise RemoteProtocolError("an offer has a subscription of another session", None)
        if reason := self._obstacle(server, move):
            self._send(server, MoveRefused(move, reason))
            return
        self._sources[move.key] = server, move
        self._emit(AwaitSession(*move.key, move.owner_epoch, server, offered))

    def _obstacle(self, server: str, move: Move) -> str:
        """Return why this server cannot await a session from ``server``, "" if it can."""
        key, state = session_key(*move.key), self._state
        if "/" in server and (reason := self._far_obstacle(server, move)):
            return reason
        if state.is_draining:
            return f"{state.server} is draining"
        if move.key in self._leaving:
            return f"the session is on its way from {state.server}"
        if (target := state.left_for(key)) not in (None, server):
            return f"the session is on its way to {target}"
        if (awaited := state.awaited.get(key)) is not None:
            return "" if awaited.source == server else f"the session is awaited from {awaited.source}"
        if state.awaited.count_from(server) >= MOVES_MAX:
            return f"{MOVES_MAX} sessions are on their way already; try again later"
        return ""

    def _far_obstacle(self, server: str, move: Move) -> str:
        """Return why this server takes no session from a server of another domain."""
        domains, domain = self._far.domains, server.partition("/")[0]
        if (there := domains.of(server)) is None or not there.takes_sessions:
            return f"{domains.own} takes no sessions of {domain}; see its federation.toml"
        if not self._serves:
            return f"{self._state.server} serves no devices"
        if self._reserves(move.user):
            return f"{move.user} is reserved"
        key = session_key(*move.key)
        if key not in self._state.awaited and self._state.awaited.count_from_domain(domain) >= FAR_MOVES_MAX:
            return f"{FAR_MOVES_MAX} sessions of {domain} are on their way already; try again later"
        return ""

    def _import(self, server: str, move: Move, data: bytes) -> None:
        """Import a session that this server awaits from ``server``, or has from there already."""
        exported = decode_export(data)
        session = exported.session
        owner = session.user, session.name, session.owner_epoch, exported.source
        if owner != (*move.key, move.owner_epoch, server):
            raise RemoteProtocolError("an export is that of another session", None)
        first = QueuePiece(0, session.next, exported.blocks, exported.events)
        rows = (*exported.subscriptions, *exported.ended)
        self._check_piece(move, first, {row.subscription.id for row in rows})
        self._check_far(server, first)
        if not is_sound_export(exported):
            raise RemoteProtocolError("an export contradicts itself", None)
        if "/" in server and not are_far(exported.publishers):
            raise RemoteProtocolError("an export of another domain says more of publishes than their answers", None)
        awaited, here = self._state.awaited.get(session.key), self._state.sessions.get(session.key)
        is_awaited = awaited is not None and (awaited.source, awaited.owner_epoch) == (server, move.owner_epoch)
        is_here = here is not None and not here.is_fenced and here.owner_epoch == move.owner_epoch
        if is_awaited or is_here:  # the broker answers again, once its record is durable
            self._sources[move.key] = server, move
            self._await_device(server, move)
            self._emit(ImportSession(data))
        elif here is not None and here.owner_epoch >= move.owner_epoch:
            self._send(server, MoveTaken(move))
        else:
            self._send(server, MoveRefused(move, f"the session {session.name!r} of {session.user} is not awaited"))

    def _await_device(self, server: str, move: Move) -> None:
        self._users.pop(move.user, None)
        self._users[move.user] = server, move
        if len(self._users) > AWAITED_USERS_MAX:
            del self._users[next(iter(self._users))]

    def _continue(self, server: str, move: Move, data: bytes) -> None:
        """Continue the queue of a session that has come from ``server``."""
        piece = decode_piece(data)
        self._check_piece(move, piece)
        self._check_far(server, piece)
        here = self._state.sessions.get(session_key(*move.key))
        if here is not None and here.owner_epoch > move.owner_epoch:
            self._send(server, MoveTaken(move))
        elif here is not None and here.owner_epoch == move.owner_epoch and here.source in (server, ""):
            self._sources[move.key] = server, move
            self._emit(ContinueQueue(*move.key, move.owner_epoch, data))

    def _check_piece(self, move: Move, piece: QueuePiece, named: Set[str] = frozenset()) -> None:
        """Raise :class:`RemoteProtocolError` for an invalid piece, and for subscriptions of another session in it."""
        if self._are_foreign(named | subscriptions_of(piece), move) or not is_sound(piece):
            raise RemoteProtocolError("a piece of a queue is not one of this session", None)

    def _check_far(self, server: str, piece: QueuePiece) -> None:
        """Raise :class:`RemoteProtocolError` for an event of another domain with the id of one that may be here."""
        domain, is_far, _ = server.partition("/")
        if is_far and not comes_from(piece.events, domain):
            raise RemoteProtocolError(f"an event has no id of {domain}", None)

    def _are_foreign(self, identities: Set[str], move: Move) -> bool:
        """Return whether any of these subscriptions is known here as one of another session, or is awaited with one."""
        key, state = session_key(*move.key), self._state
        rows = [row.subscription for each in identities if (row := state.known(each)) is not None]
        return any((each.owner, each.session) != move.key for each in rows) or any(
            state.awaited.session_with(each) not in (None, key) for each in identities
        )

    def _send(self, server: str, message: Message) -> None:
        if "/" in server:
            self._far.send(server, message)
        else:
            self._links.send(server, encode(message), self._emit)
