"""Requests to a matching engine that runs beside the server, as Spark does (SPEC T-06; DESIGN 7.5).

The server asks, the engine is the service. The server's log has the events and the changes of subscriptions, and the
engine reads it. The **watermark** is the offset below which the server has the matches of all events. It is durable
in the server alone: an engine stores nothing that matters, and begins where the server says.

1. :data:`BEGIN` in one or more pieces: match from offset ``first`` on, beginning with these subscriptions. What an
   earlier ``BEGIN`` started ends.
2. :data:`MATCHES` from the watermark on, again and again. The engine waits up to ``wait_s`` for matches. It keeps
   what it has answered until a later request begins behind that. An engine that was started since, or cannot continue
   at ``first``, answers with ``is_lost``, and the server begins again.

The engine's events are those of the records :class:`~wanderbus.records.Published` and
:class:`~wanderbus.records.Arrived` whose ``engine`` is :data:`~wanderbus.records.SPARK`; the server ignores matches of
others. A subscription to a subject also gets the events of the subjects below it. The answers pass over all other
records: ``next`` advances over them too.

A server may start the engine itself, as ``wanderbus pipeline engine --data DIR`` with a pipe as standard input. It
never writes to the pipe, and the engine ends when the pipe ends (:mod:`wanderbus.runtime.services.supervised`). An
engine whose standard input is no pipe ignores it.

An engine may name too many subscriptions, never too few: the server knows from which offset on each one holds, and
leaves out the others. So the engine may add a subscription early and remove it late.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.subscription import Subscription

NAME: Final = "engine"
"""Name of the service."""

BEGIN: Final = ("begin", 2)
MATCHES: Final = ("matches", 1)

PIECE_SUBSCRIPTIONS_MAX: Final = 2_000
"""Subscriptions in one piece of :class:`Begin`, so that a frame holds them."""


class Begin(msgspec.Struct, frozen=True):
    """Match the events of the log of ``server`` in ``incarnation`` from offset ``first`` on.

    ``subscriptions`` are all that may hold at ``first`` or have been added since, up to some later offset; changes in
    the log from ``first`` on are to be followed too. The pieces of one beginning have the same ``number``, and the last
    one ``is_last``. ``filter_work_max`` bounds the units of work of one filter for one event (``broker``'s setting).
    ``parents`` are the parents of subjects (SPEC J-13). The answer is ``None``.
    """

    number: int
    server: str
    incarnation: int
    first: int
    subscriptions: tuple[Subscription, ...]
    filter_work_max: int
    is_last: bool
    parents: dict[str, str] = {}


class MatchesAsked(msgspec.Struct, frozen=True):
    """Return the matches from offset ``first`` on, of the beginning ``number``.

    The matches below ``durable`` are durable in the server and need not be kept.
    """

    number: int
    first: int
    durable: int
    wait_s: float


class EventMatches(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The ids of the subscriptions that the event at ``offset`` matches.

    ``undecided`` are those whose filter needs more work than is allowed for this event.
    """

    offset: int
    matched: tuple[str, ...]
    undecided: tuple[str, ...] = ()


class Matches(msgspec.Struct, frozen=True):
    """All matches of the events from ``first`` up to ``next``, by offset; events without a match are left out.

    ``next`` equals ``first`` if there is nothing yet. With ``is_lost`` the server has to begin again.
    """

    first: int
    next: int
    events: tuple[EventMatches, ...] = ()
    is_lost: bool = False
