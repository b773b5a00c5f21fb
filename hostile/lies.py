"""Lies of a server of a domain, as bytes for its links: about sessions that it never had, and in those that it had."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final

import msgspec

from hostile.altered import lies_in, renamed, with_lie
from hostile.attack import DOMAIN
from wanderbus import protocol
from wanderbus.broker.queues.stored_blocks import Block, QueuePiece, StoredGap
from wanderbus.broker.sessions.handover_messages import DevicePast, Head, PastQuestion, SessionQuestion
from wanderbus.broker.state.exported_session import ExportedSession, decode_export, encode_piece
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId
from wanderbus.limits import NUMBER_MAX
from wanderbus.peers.handover.messages import (
    HANDOVER_PREFIX,
    Content,
    HeadAnswered,
    HeadAsked,
    Message,
    Move,
    MoveAwaited,
    MoveReady,
    MoveRefused,
    MoveTaken,
    MoveWithdrawn,
    Part,
    PastAnswered,
    PastAsked,
    RestWanted,
    SessionAnswered,
    encode,
    encode_offer,
    parts_of,
)
from wanderbus.peers.owner_messages import OWNER_PREFIX, OwnerAnswered, OwnerAsked
from wanderbus.peers.owner_messages import encode as encode_owner
from wanderbus.protocol.domains import (
    Drain,
    GroupLeaders,
    GroupPrepared,
    GroupPublishersKnown,
    ImportSession,
    LedGroup,
    MoveGroup,
    MoveSession,
    TransferSession,
)
from wanderbus.subscription import Subscription

SESSION: Final = "default"
GHOST: Final = "sip:ghost"
"""Beginning of the names of users who exist nowhere."""

FALSE_EACH: Final = 8
"""Two of so many exports contradict themselves, or end early; the others take a session to the other server."""

Kind = Callable[[str, int], list[bytes]]
"""Makes a lie for a server, at this time in microseconds."""

PART_BYTES: Final = 30_000
UNASKED: Final = 2**40
"""Number of a request that nobody has made."""


class Honest(msgspec.Struct, frozen=True):
    """A session of an honest user: its server, its devices, and its subscriptions."""

    server: str
    user: str
    devices: tuple[str, ...]
    subscriptions: tuple[str, ...]


class Lies:
    """Makes the lies of the server ``own``; ``exported`` is a session that it owned, ``honest`` are those of others."""

    def __init__(self, own: str, exported: ExportedSession, honest: Sequence[Honest], random: Random) -> None:
        self._own = own
        self._exported = exported
        self._plain: Any = msgspec.msgpack.decode(msgspec.msgpack.encode(exported))
        self._honest = honest
        self._random = random
        self._false = [each for lie in lies_in(self._plain) if _is_readable(each := with_lie(self._plain, *lie))]
        self._withdrawn: set[Move] = set()
        """Offers that are withdrawn once they are accepted."""
        self._numbers = itertools.count(1)
        of_honest = (self._offer_of_honest, self._piece_of_honest, self._export_of_honest)
        quiet = (self._questions, self._answers, self._steps, self._offer, *of_honest)
        self._quiet: Iterator[Kind] = itertools.cycle(quiet)
        loud = (self._foreign_offer, self._foreign_export, self._stray_part, self._requests, self._noise)
        self._loud: Iterator[Kind] = itertools.cycle(loud)

    def quiet(self, server: str, at_us: int) -> list[bytes]:
        """Return the next lies for ``server`` that can be ignored."""
        return next(self._quiet)(server, at_us)

    def loud(self, server: str, at_us: int) -> list[bytes]:
        """Return the next lie for ``server`` that closes the link."""
        return next(self._loud)(server, at_us)

    def export(self, move: Move) -> list[bytes]:
        """Return a session for ``move``, which is awaited: sometimes with something false in it, or without its end."""
        if move in self._withdrawn:
            return [encode(MoveWithdrawn(move))]
        kind = self._random.randrange(FALSE_EACH)
        plain = renamed(self._random.choice(self._false) if kind == 0 else self._plain, self._names(move))
        plain["session"]["owner_epoch"] = move.owner_epoch
        data = msgspec.msgpack.encode(plain)
        if kind == 1:
            data = data[: self._random.randrange(len(data))]
        return self._parts(move, "export", data) + self._parts(move, "rest", self._piece(move.user))

    def _names(self, move: Move) -> dict[str, str]:
        """Return the texts of the session that this server owned, with those of the session ``move`` for them."""
        session, behind = self._exported.session, f"{move.owner_epoch % 10**9}"
        return {session.user: move.user, **{each: each + behind for each in session.subscriptions + session.ended}}

    def _parts(self, move: Move, what: Content, data: bytes) -> list[bytes]:
        return [encode(each) for each in parts_of(move, what, data)]

    def _move(self, user: str, at_us: int) -> Move:
        return Move(user, SESSION, self._random.choice((0, 1, 2, at_us, NUMBER_MAX)))

    def _one(self) -> Honest:
        return self._random.choice(self._honest)

    def _ghost(self) -> str:
        """Return a user who has no session anywhere."""
        return f"{GHOST}{next(self._numbers)}@{DOMAIN}"

    # Kinds -------------------------------------------------------------------------------------------------------

    def _questions(self, server: str, at_us: int) -> list[bytes]:
        """Ask many questions, mostly about sessions of others."""
        one, number = self._one(), next(self._numbers)
        asked: list[Message] = [HeadAsked(number)]
        for starts in (False, True):
            asked.append(HeadAsked(number, SessionQuestion(one.user, SESSION, "x", starts)))
        device = self._random.choice(one.devices)
        asked.append(PastAsked(number, PastQuestion(one.user, SESSION, device)))
        asked.append(MoveAwaited(self._move(one.user, at_us)))
        return [*map(encode, asked), encode_owner(OwnerAsked(number, one.user, SESSION))]

    def _answers(self, server: str, at_us: int) -> list[bytes]:
        """Answer what was not asked: for other servers' logs too, and about all that an answer can name."""
        one, number = self._one(), self._random.choice((1, 2, UNASKED))
        origin = self._random.choice([each.server for each in self._honest])
        head = Head(EventId(origin, NUMBER_MAX, NUMBER_MAX), NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, NUMBER_MAX, True)
        question = SessionQuestion(one.user, SESSION, "x", True)
        answers: list[Message] = [
            HeadAnswered(number, head),
            PastAnswered(number, DevicePast(b"\x80", b"", one.server, True)),
            SessionAnswered(question, ("x",), True),
        ]
        owner = OwnerAnswered(UNASKED, (f"sip:{self._own}@{DOMAIN}",), self._own, NUMBER_MAX, (), True)
        return [*map(encode, answers), encode_owner(owner)]

    def _steps(self, server: str, at_us: int) -> list[bytes]:
        """Take every step of a move of a session that does not move, or goes elsewhere."""
        move = self._move(self._one().user, at_us)
        steps: tuple[Message, ...] = (
            MoveReady(move, 9),
            MoveTaken(move),
            MoveTaken(move, True),
            MoveRefused(move, "no"),
            MoveWithdrawn(move),
            RestWanted(move, NUMBER_MAX),
        )
        return [encode(each) for each in steps]

    def _offer(self, server: str, at_us: int) -> list[bytes]:
        """Offer the session that this server owned, as one of a new user; the export follows when it is awaited."""
        move = Move(self._ghost(), SESSION, at_us)
        rows = [row.subscription for row in self._exported.subscriptions]
        plain = renamed(msgspec.msgpack.decode(encode_offer(tuple(rows))), self._names(move))
        return self._parts(move, "offer", msgspec.msgpack.encode(plain))

    def _offer_of_honest(self, server: str, at_us: int) -> list[bytes]:
        """Offer the session of an honest user, who has it at this server or at another one."""
        one = self._one()
        wanted = tuple(Subscription(each, one.user, SESSION, "Fact", "") for each in one.subscriptions)
        return self._parts(self._move(one.user, at_us), "offer", encode_offer(wanted))

    def _piece_of_honest(self, server: str, at_us: int) -> list[bytes]:
        """Send a piece of a queue that nobody wants, with gaps for all that waits, and a part of what never ends."""
        move = self._move(self._one().user, at_us)
        endless = Part(move, "offer", 0, False, bytes(PART_BYTES))
        return [*self._parts(move, "rest", self._piece(move.user)), encode(endless)]

    def _foreign_offer(self, server: str, at_us: int) -> list[bytes]:
        """Offer subscriptions of honest users as ones of somebody else."""
        move, one = self._move(self._ghost(), at_us), self._one()
        wanted = tuple(Subscription(each, move.user, SESSION, "Fact", "") for each in one.subscriptions)
        self._withdrawn.add(move)
        return self._parts(move, "offer", encode_offer(wanted))

    def _foreign_export(self, server: str, at_us: int) -> list[bytes]:
        """Send a session in the name of the server of an honest user."""
        one = self._one()
        return self._unawaited(self._move(one.user, at_us), one.server)

    def _export_of_honest(self, server: str, at_us: int) -> list[bytes]:
        """Send the session of an honest user that nobody awaits."""
        move = Move(self._one().user, SESSION, self._random.choice((1, 2, at_us)))
        return self._unawaited(move, self._own)

    def _unawaited(self, move: Move, source: str) -> list[bytes]:
        plain = renamed(self._plain, self._names(move) | {self._exported.source: source})
        plain["session"]["owner_epoch"] = move.owner_epoch
        return self._parts(move, "export", msgspec.msgpack.encode(plain))

    def _stray_part(self, server: str, at_us: int) -> list[bytes]:
        """Send a part that follows none."""
        number = self._random.choice((5, NUMBER_MAX))
        return [encode(Part(self._move(self._one().user, at_us), "export", number, True, b""))]

    def _piece(self, user: str) -> bytes:
        names = [each.subscriptions[0] for each in self._honest if each.user == user and each.subscriptions]
        gaps = tuple(StoredGap(each, 1, 1_000, {"limit": 1_000}, {"limit": (0,)}) for each in names)
        blocks = ((0, Block((), (), (), gaps)),) if gaps else ()
        return encode_piece(QueuePiece(0, 1_000, blocks, (), tuple((each, 1_000) for each in names), True))

    def _requests(self, server: str, at_us: int) -> list[bytes]:
        """Ask as an agent for what an administrator may do, and say what only a leader may say."""
        one, number = self._one(), next(self._numbers)
        led = LedGroup(self._random.randrange(64), self._own, at_us, server)
        asked = (
            MoveSession(number, one.user, SESSION, self._own),
            ImportSession(number, one.user, SESSION, 0, None, (), True),
            TransferSession(number, one.user, SESSION, "x"),
            Drain(number, True),
            MoveGroup(number, led.group, self._own, True),
            protocol.Kick(number, one.user, None, True),
            protocol.Purge(number, one.user, SESSION, None),
            protocol.Unsubscribe(number, one.subscriptions[0]),
            GroupPrepared(led.group, 1),
            GroupPublishersKnown(led.group, 1, 0),
            GroupLeaders((led,)),
            protocol.Attach(at_us, SESSION, None, False),
        )
        return [protocol.encode(self._random.choice(asked))]

    def _noise(self, server: str, at_us: int) -> list[bytes]:
        """Send bytes that are no message, or half of one."""
        prefix = self._random.choice((HANDOVER_PREFIX, OWNER_PREFIX, b""))
        half = encode(MoveTaken(self._move(self._one().user, at_us)))
        return [self._random.choice((prefix + self._random.randbytes(50), half[:-5], b""))]


def _is_readable(plain: Any) -> bool:
    """Return whether a decoded export can be read, so that nothing but its content is false."""
    try:
        decode_export(msgspec.msgpack.encode(plain))
    except RemoteProtocolError:
        return False
    return True
