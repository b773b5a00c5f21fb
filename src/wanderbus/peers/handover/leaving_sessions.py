"""Sessions that leave this server: offered, fenced when the target is ready, and sent (SPEC L-02 to L-04, L-06)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, Literal

from wanderbus.broker.queues.stored_blocks import QueuePiece
from wanderbus.broker.sessions.drain import is_used
from wanderbus.broker.sessions.handover_messages import (
    DropExport,
    FenceSession,
    Head,
    HeadFound,
    HeadWanted,
    KeepSession,
    MoveSession,
    SessionExported,
    SessionMoveEnded,
    SessionMoveRefused,
)
from wanderbus.broker.state.exported_session import decode_answers, encode_piece
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.peers.far_servers import FarDomains, ServersFound
from wanderbus.peers.handover.far_export import far_export, far_piece
from wanderbus.peers.handover.far_moves import FarLeaving, FarMoves, FarMovesOutput
from wanderbus.peers.handover.messages import (
    VERSION,
    HeadAnswered,
    HeadAsked,
    Message,
    Move,
    MoveAwaited,
    MoveReady,
    MoveRefused,
    MoveTaken,
    MoveWithdrawn,
    OfMoves,
    RestWanted,
    encode,
    encode_offer,
    parts_of,
)
from wanderbus.peers.handover.move_pace import MovePace
from wanderbus.peers.open_links import OpenLinks

MOVE_S: Final = 30.0
"""Time after which a session stays here if it has not been fenced."""

MOVES_MAX: Final = 1_024
"""Largest number of sessions that are on their way at once; a further move is refused."""

RETURNING_MAX: Final = 32
"""Largest number of sessions without a server whose devices were connected before a drain: they call all at once."""

RETURN_LATE_S: Final = 0.1
"""A device that comes back later than the fastest one by this time waits for others."""

RETURN_S_MAX: Final = 0.5
"""Time after which a device is not awaited any more: it may have gone away."""

PIECE_BYTES: Final = 256 * 2**10
"""Size of a piece of a queue, about."""

PIECES_MAX: Final = 4
"""Largest number of pieces of a queue on their way to the target without an answer."""

LeavingOutput = FarMovesOutput | SetTimer | CancelTimer | SessionMoveEnded | FenceSession | KeepSession | DropExport


class _Leaving:
    """A session on its way to ``target``."""

    def __init__(self, move: Move, target: str, cause: str = "") -> None:
        self.move = move
        self.target = target
        self.cause = cause
        self.stage: Literal["calling", "far", "offered", "ready", "held", "fencing", "fenced", "ended"] = "offered"
        self.subscriptions: tuple[str, ...] = ()
        """Those that the target knows."""
        self.request = 0
        """Number of the question for the heads."""
        self.heads: dict[str, Head] = {}
        self.is_in_pieces = False
        """True if the target takes the queue in pieces."""
        self.sent: int | None = None
        """Number up to which the queue was sent on this link, None if the target has not said what it has."""
        self.unconfirmed: deque[int] = deque()
        """Last numbers of the pieces that the target has not confirmed."""
        self.is_sent = False
        """True if the last piece was sent on this link."""
        self.is_far = False
        """True if the target is in another domain."""

    def begin_again(self) -> None:
        """Note that nothing of the queue was sent on a new link."""
        self.stage, self.sent, self.is_sent = "fenced", None, False
        self.unconfirmed.clear()


class LeavingSessions:
    """The part of the source in moves of sessions; ``emit`` takes its outputs.

    :param others: the names of the other servers of the domain
    :param access: those that serve devices
    :param piece_bytes: size of a piece of a queue
    """

    def __init__(
        self,
        others: Iterable[str],
        access: Container[str],
        state: BrokerState,
        links: OpenLinks,
        emit: Callable[[LeavingOutput], None],
        piece_bytes: int = PIECE_BYTES,
        domains: FarDomains | None = None,
        far_links: OpenLinks | None = None,
    ) -> None:
        self._piece_bytes = piece_bytes
        self._others = frozenset(others)
        self.targets = frozenset(each for each in self._others if each in access)
        """Servers to which a session may move."""
        self._state = state
        self._links = links
        self._emit = emit
        self._now = 0.0
        self._moves: dict[tuple[str, str], _Leaving] = {}
        self._by_request: dict[int, list[_Leaving]] = {}
        """Sessions that wait for the heads, by the number of the question, which those of one step share."""
        self._last_request = 0
        self.far = FarMoves(state, domains or FarDomains(), far_links or OpenLinks(), self._new_request, emit)
        self._is_asked = False
        """True if the last question was asked in this step."""
        self._held: deque[_Leaving] = deque()
        """Sessions of a drain that could leave, and wait until the devices of others have come back."""
        self._returning = MovePace(1, RETURNING_MAX, RETURN_LATE_S, RETURN_S_MAX)

    def __contains__(self, key: object) -> bool:
        """Return whether the session with this user and name, the key, is on its way."""
        return key in self._moves

    def __len__(self) -> int:
        """Return the number of sessions that are on their way."""
        return len(self._moves)

    def moving(self) -> dict[str, list[int]]:
        """Return the owner epochs of the sessions on their way to each server, and of those that it has not whole."""
        keys = {session_key(*key): (each.target, each.move.owner_epoch) for key, each in self._moves.items()}
        for key, target in self._targets():
            keys[key] = target, self._state.sessions[key].owner_epoch
        found: dict[str, list[int]] = {}
        for target, epoch in keys.values():
            found.setdefault(target, []).append(epoch)
        return found

    @property
    def has_all_links(self) -> bool:
        """Return whether all servers of the domain can be reached, without which no session moves."""
        return self._others <= self._links.servers

    def begin(self, given: MoveSession) -> None:
        """Offer a session to its target."""
        if reason := self.obstacle(given):
            self._emit(SessionMoveEnded(given.user, given.session, given.target, reason))
            return
        session = self._state.sessions[session_key(given.user, given.session)]
        # A session that has begun again may have been at the target before, in a later epoch than its own.
        move = Move(given.user, given.session, max(session.owner_epoch + 1, self._state.wall_us))
        leaving = self._moves[move.key] = _Leaving(move, given.target, given.cause)
        self._emit(SetTimer(move.key, self._now + MOVE_S))
        if self._is_far(given.target):
            leaving.stage, leaving.is_far = "calling", True
            self.far.begin(leaving)
            self._call(leaving)
        else:
            self._offer(leaving)

    def _is_far(self, target: str) -> bool:
        return target not in self.targets and self.far.domains.of(target) is not None

    def _call(self, leaving: FarLeaving) -> None:
        """Offer a session to a server of another domain, if there is a link."""
        found = self._moves[leaving.move.key]
        if found.stage == "calling" and self.far.links.newest(found.target) is not None:
            self._offer(found)

    def _new_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def servers_found(self, found: ServersFound) -> None:
        """Take the servers of another domain."""
        for each in list(self.far.found(found)):
            self._call(each)
        for leaving in [each for each in self._moves.values() if each.stage == "far"]:
            self._go_on_here(leaving)

    def begin_step(self, now: float) -> None:
        """Begin a step at monotonic second ``now``."""
        self._now, self._is_asked = now, False

    def go_on(self) -> None:
        """Fence sessions of a drain whose devices will call, as fast as those of others have come back."""
        while self._held and (self._returning.has_room(self._now) or not self._state.is_draining):
            leaving = self._held.popleft()
            if leaving.stage == "held":
                self._returning.begin((leaving.target, leaving.move), self._now)
                self._fence(leaving)

    @property
    def are_returning(self) -> bool:
        """Return whether devices are on their way back whose sessions have left in a drain, or are about to."""
        return bool(self._held) or not self._returning.is_idle(self._now)

    @property
    def returning_max(self) -> int:
        """Return how many sessions whose devices were connected may be without a server now, in a drain."""
        return self._returning.size

    def obstacle(self, given: MoveSession) -> str:
        """Return why a move cannot begin, "" if it can."""
        session = self._state.sessions.get(session_key(given.user, given.session))
        is_far = self._is_far(given.target)
        if is_far and (reason := self.far.obstacle(given.target)):
            return reason
        if given.target not in self.targets and not is_far:
            return self._unknown(given.target)
        if session is not None and session.has_left_domain:
            return f"the session {given.session!r} of {given.user} has moved to {session.next_owner}"
        if session is None or session.is_fenced:
            return f"{given.user} has no session {given.session!r} at this server"
        if (awaited := self._state.awaited.get(session_key(given.user, given.session))) is not None:
            return f"the session {given.session!r} of {given.user} is on its way here from {awaited.source}"
        if session.source:
            return f"the rest of the queue of the session {given.session!r} is on its way here from {session.source}"
        if (given.user, given.session) in self._moves:
            return f"the session {given.session!r} of {given.user} is on its way already"
        if len(self._moves) >= MOVES_MAX:
            return f"{MOVES_MAX} sessions are on their way; try again later"
        if missing := sorted(self._others - self._links.servers):
            return f"{' and '.join(missing)} cannot be reached; sessions move while all servers of the domain run"
        return ""

    def _unknown(self, target: str) -> str:
        """Return why nothing moves to a target that is no server here and no foreign domain."""
        foreign = sorted(self.far.domains.foreign)
        if not self.targets and foreign:
            return f"{target!r} is no foreign domain of {self.far.domains.own}; those are {', '.join(foreign)}"
        names = ", ".join(sorted(self.targets)) or "none"
        domains = f", and other domains {', '.join(foreign)}" if foreign else ""
        return f"{target!r} is no other server that serves devices; those are {names}{domains}"

    # The broker --------------------------------------------------------------------------------------------------

    def head_found(self, found: HeadFound) -> None:
        """Pass the end of this log on to the server that has asked."""
        if found.server == self._state.server:
            self._on_head(found.server, found.request, found.head)
        else:
            self._send(found.server, HeadAnswered(found.request, found.head))

    def exported(self, exported: SessionExported) -> None:
        """Send an exported session to its target."""
        leaving = self._moves.get((exported.user, exported.session))
        if leaving is not None:
            leaving.begin_again()
            self._emit(CancelTimer(leaving.move.key))
            export = exported.export
            if leaving.is_far:
                domains = self.far.domains
                export = far_export(export, domains.own, domains.server or self._state.server, leaving.target)
            for part in parts_of(leaving.move, "export", export):
                self._send(leaving.target, part)

    def refused(self, refused: SessionMoveRefused) -> None:
        """Offer a session again that has got further subscriptions, or let it stay."""
        leaving = self._moves[refused.user, refused.session]
        if refused.has_more:
            self._offer(leaving)
        elif leaving.stage != "fenced":
            self._stay(leaving, refused.reason)
        elif session_key(*leaving.move.key) in self._state.rests:  # the target has the export since it was requested
            self._send_piece(leaving.target, leaving.move, QueuePiece())
        elif session_key(*leaving.move.key) not in self._state.exports:
            self._forget(leaving)  # and now it has all of the session

    def timer_fired(self, key: object) -> None:
        """Let a session stay that could not be fenced in time."""
        for leaving in [each for each in self._moves.values() if each.move.key == key]:
            if leaving.stage == "fencing":
                self._emit(KeepSession(*leaving.move.key))
            elif leaving.stage != "fenced":
                late = leaving.target
                if leaving.stage not in ("calling", "offered"):
                    late = " and ".join(sorted(self._missing(leaving)))
                self._stay(leaving, f"{late} did not answer within {MOVE_S:g} s")

    # Other servers -----------------------------------------------------------------------------------------------

    def link_opened(self, server: str) -> None:
        """Repeat what a link that failed may have lost."""
        for leaving in [each for each in self._moves.values() if each.target == server]:
            if leaving.stage == "offered":
                self._offer(leaving, again=True)
            elif leaving.stage == "calling":
                self._offer(leaving)
        self.far.link_opened(server)
        for request, several in self._by_request.items():
            if any(self._was_asked(server, each) for each in several):
                self._send(server, self._question(several[0], request))
        for move in self._left_for(server):
            leaving = self._moves.setdefault(move.key, _Leaving(move, server))
            leaving.is_far = self._is_far(server)
            leaving.begin_again()
            if session_key(*move.key) in self._state.exports:
                self._emit(FenceSession(*move.key, move.owner_epoch))
            else:
                self._send_piece(server, move, QueuePiece())  # the answer is how much is there

    def received(self, server: str, message: OfMoves) -> None:
        """Take a message of another server."""
        match message:
            case MoveReady(move=move, version=version, wanted=wanted):
                if (leaving := self._found(server, move)) is None:
                    self._withdraw(server, move)
                elif leaving.stage == "offered" and leaving.is_far:
                    leaving.is_in_pieces, leaving.stage = True, "far"
                    self.far.ready(leaving, wanted)
                    self._go_on_here(leaving)
                elif leaving.stage == "offered":
                    self._go_on(leaving, version)
            case HeadAnswered(request=request, head=head):
                self._on_head(server, request, head)
            case RestWanted(move=move, through=through):
                if (leaving := self._found(server, move)) is not None and leaving.stage == "fenced":
                    self._emit(DropExport(*move.key, through))
                    self._send_rest(leaving, through)
            case MoveTaken(move=move, has_come=True):
                self._returning.end((server, move), self._now)  # the rest of the queue may still be here
            case MoveTaken(move=move):
                self._on_taken(server, move)
            case MoveRefused(move=move, reason=reason):
                leaving = self._found(server, move)
                if leaving is not None and leaving.stage == "fencing":
                    self._emit(KeepSession(*move.key))  # the answer ends the move, unless it is too late
                elif leaving is not None and leaving.stage != "fenced":
                    self._stay(leaving, reason, has_refused=True)  # it may have accepted an earlier offer
            case MoveAwaited(move=move):
                if self._found(server, move) is None:
                    self._withdraw(server, move)
            case HeadAsked(request=request, wanted_by=""):
                self._emit(HeadWanted(server, request))
            case HeadAsked():
                self.far.asked(server, message)

    def _on_head(self, server: str, request: int, head: Head) -> None:
        """Take the end of a log; :class:`RemoteProtocolError` if what comes with it cannot be used."""
        decode_answers(head.answers)
        if "/" in server:
            if (far := self.far.answered(server, request, head)) is not None:
                self._go_on_here(self._moves[far.move.key])
        elif head.end.origin == server:
            for leaving in list(self._by_request.get(request, ())):
                leaving.heads[server] = head
                if server == self._state.server:
                    self._ask_servers_here(leaving)
                self._fence_if_ready(leaving)

    def _go_on_here(self, leaving: _Leaving) -> None:
        """Ask the servers here for the ends of their logs, once those of other domains are known."""
        if leaving.stage != "far" or self.far.heads(leaving) is None:
            return
        leaving.stage, leaving.request, leaving.heads = "ready", self._new_request(), {}
        self._by_request[leaving.request] = [leaving]
        self.far.pause(leaving, leaving.request)

    def _ask_servers_here(self, leaving: _Leaving) -> None:
        """Ask the servers here for the ends of their logs, once they have answered all that the session publishes."""
        for server in sorted(self._others):
            self._send(server, self._question(leaving, leaving.request))

    def _question(self, leaving: _Leaving, request: int) -> HeadAsked:
        return self.far.question(leaving, request) if leaving.is_far else HeadAsked(request)

    def _withdraw(self, server: str, move: Move) -> None:
        """Let a server wait no longer for a session of which nothing goes there."""
        if not self._has_left(server, move):
            self._send(server, MoveWithdrawn(move))

    def _on_taken(self, server: str, move: Move) -> None:
        if self._has_left(server, move):
            self._emit(DropExport(*move.key))
        if (leaving := self._found(server, move)) is not None:
            self._end(leaving)

    # Steps -------------------------------------------------------------------------------------------------------

    def _offer(self, leaving: _Leaving, *, again: bool = False) -> None:
        """Offer the session with its present subscriptions, or ``again`` with no further ones.

        The next :class:`MoveReady` may answer the earlier offer, and says nothing about what was added since.
        """
        self._ask_no_more(leaving)
        leaving.stage = "offered"
        session = self._state.sessions[session_key(*leaving.move.key)]
        offered = frozenset(leaving.subscriptions)
        leaving.subscriptions = tuple([each for each in session.subscriptions if not again or each in offered])
        wanted = tuple(self._state.subscriptions[each].subscription for each in leaving.subscriptions)
        for part in parts_of(leaving.move, "offer", encode_offer(wanted)):
            self._send(leaving.target, part)

    def _go_on(self, leaving: _Leaving, version: int) -> None:
        """Ask for the heads, unless the ``version`` that the target speaks has no move for such a session."""
        leaving.is_in_pieces = version >= VERSION
        session, patterns = self._state.sessions[session_key(*leaving.move.key)], self._state.patterns
        missing = ""
        if not leaving.is_in_pieces and session.queued_bytes > self._piece_bytes:
            missing = f"queue of {session.queued_bytes} bytes"
        elif not leaving.is_in_pieces and any(patterns.kept(each) is not None for each in session.subscriptions):
            missing = "pattern"
        if missing:
            earlier = f"has an earlier version, which takes no {missing}; upgrade it first"
            self._stay(leaving, f"{leaving.target} {earlier}")
        else:
            self._ask_heads(leaving)

    def _ask_heads(self, leaving: _Leaving) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._last_request += 1
            for server in sorted(self._others):
                self._send(server, HeadAsked(self._last_request))
        leaving.stage, leaving.request, leaving.heads = "ready", self._last_request, {}
        self._by_request.setdefault(leaving.request, []).append(leaving)

    def _ask_no_more(self, leaving: _Leaving) -> None:
        """Let a session wait for no heads any more."""
        several = self._by_request.get(leaving.request, [])
        if leaving in several:
            several.remove(leaving)
            if not several:
                del self._by_request[leaving.request]

    def _fence_if_ready(self, leaving: _Leaving) -> None:
        if leaving.stage != "ready" or self._missing(leaving):
            return
        self._ask_no_more(leaving)
        session = self._state.sessions.get(session_key(*leaving.move.key))
        if leaving.cause == "drain" and session is not None and is_used(self._state, session):
            leaving.stage = "held"
            self._held.append(leaving)
        else:
            self._fence(leaving)

    def _fence(self, leaving: _Leaving) -> None:
        leaving.stage = "fencing"
        heads = tuple(leaving.heads[server] for server in sorted(leaving.heads) if server != self._state.server)
        move, target = leaving.move, leaving.target
        self._emit(
            FenceSession(
                *move.key,
                move.owner_epoch,
                target,
                leaving.subscriptions,
                heads,
                leaving.cause,
                self._piece_bytes if leaving.is_in_pieces else 0,
                self.far.heads(leaving) if leaving.is_far else None,
            )
        )

    def _missing(self, leaving: _Leaving) -> frozenset[str]:
        """Return the servers whose head is still missing."""
        if not leaving.is_far:
            return self._others - leaving.heads.keys()
        if leaving.stage == "far":
            return frozenset(self.far.missing(leaving))
        return (self._others | {self._state.server}) - leaving.heads.keys()

    def _was_asked(self, server: str, leaving: _Leaving) -> bool:
        """Return whether the answer of a server here is missing, to a question that was asked already."""
        is_asked = not leaving.is_far or self._state.server in leaving.heads
        return is_asked and server in self._missing(leaving)

    def _found(self, server: str, move: Move) -> _Leaving | None:
        leaving = self._moves.get(move.key)
        return leaving if leaving is not None and (leaving.target, leaving.move) == (server, move) else None

    def _send_rest(self, leaving: _Leaving, through: int) -> None:
        """Send the next pieces of a queue, which the target has up to number ``through``."""
        if leaving.sent is None:
            leaving.sent = through
        while leaving.unconfirmed and leaving.unconfirmed[0] <= through:
            leaving.unconfirmed.popleft()
        left = self._state.queue.left(session_key(*leaving.move.key))
        while left is not None and not leaving.is_sent and len(leaving.unconfirmed) < PIECES_MAX:
            piece = left.piece(leaving.sent, self._piece_bytes)
            leaving.sent, leaving.is_sent = piece.through, piece.is_last
            leaving.unconfirmed.append(piece.through)
            piece = far_piece(piece, self.far.domains.own) if leaving.is_far else piece
            self._send_piece(leaving.target, leaving.move, piece)

    def _send_piece(self, server: str, move: Move, piece: QueuePiece) -> None:
        for part in parts_of(move, "rest", encode_piece(piece)):
            self._send(server, part)

    def _left_for(self, server: str) -> Iterator[Move]:
        """Yield the sessions that have left for a server, which may not have them whole."""
        for key, target in self._targets():
            if target == server:
                session = self._state.sessions[key]
                yield Move(session.user, session.name, session.owner_epoch)

    def _has_left(self, server: str, move: Move) -> bool:
        """Return whether a session has left for a server, which may not have it whole."""
        key = session_key(*move.key)
        return self._state.left_for(key) == server and self._state.sessions[key].owner_epoch == move.owner_epoch

    def _targets(self) -> list[tuple[str, str]]:
        """Return the keys of the sessions that have left, each with the server that may not have it whole."""
        exports, rests = self._state.exports, self._state.rests
        return [
            *((key, export.target) for key, export in exports.items()),
            *((key, rest.target) for key, rest in rests.items()),
        ]

    def _stay(self, leaving: _Leaving, reason: str, *, has_refused: bool = False) -> None:
        """Let a session stay that has not left."""
        self._send(leaving.target, MoveWithdrawn(leaving.move))
        self._end(leaving, reason, has_refused=has_refused)

    def _forget(self, leaving: _Leaving) -> None:
        del self._moves[leaving.move.key]
        if leaving.is_far:
            self.far.end(leaving.move)

    def _end(self, leaving: _Leaving, reason: str = "", *, has_refused: bool = False) -> None:
        self._forget(leaving)
        self._ask_no_more(leaving)
        if reason:
            leaving.stage = "ended"
            self._returning.forget((leaving.target, leaving.move))
        self._emit(CancelTimer(leaving.move.key))
        self._emit(SessionMoveEnded(*leaving.move.key, leaving.target, reason, has_refused))

    def _send(self, server: str, message: Message) -> None:
        if "/" in server:
            self.far.send(server, message)
        else:
            self._links.send(server, encode(message), self._emit)
