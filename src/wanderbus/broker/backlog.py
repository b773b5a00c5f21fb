"""Messages of agents, processed in bounded steps; messages beyond one step wait, and users take fair turns.

A step does at most ``turn_units`` of work, which bounds how long other users wait. It does none while
``unsynced_units_max`` wait for the disk, so that the events of one user do not make the sync long for all. A waiting
message keeps its sender's flow-control window closed: nothing is refused, dropped or reordered; the publisher waits.

A user who always has more messages leaves room for other active users: after a step, *n* such users wait for an *n*-th
of the time that the step took. So one such user gets half of the server, and all of it while nobody else is active.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from wanderbus import protocol
from wanderbus.broker.fair_queue import BYTES_A_UNIT, FairQueue
from wanderbus.broker.links import Links
from wanderbus.broker.messages import MessageArrived
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.waiting_messages import DueMessage
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import SetTimer
from wanderbus.parameters.broker import BrokerConfig

LinkMessages: TypeAlias = Sequence[tuple[int, protocol.FromAgent | RemoteProtocolError]]
"""Links and the message of each; an error stands for a malformed one."""

TURN: Final = ("turn",)
"""Key of the timer of the next step."""

REASON: Final = "sent more messages than fit a turn, and waited while others were served"
"""Reason under which a wait is counted."""

ALONE_TURNS: Final = 16
"""Turns that make one step while a single user is active: a larger batch costs less for each message."""

ACTIVE_S: Final = 1.0
"""Time for which a user counts as active after a message, at least; twice that at most."""

REQUESTS_ACTIVE: Final = 20
"""Requests within a second after which a user who publishes nothing counts as active; connecting takes fewer."""

PAUSE_S_MAX: Final = 0.1
"""Longest wait between two steps for users who have more messages."""

UNATTENDED_MAX: Final = 512
"""Waiting messages of the party :data:`UNATTENDED`; it has no window to close, so further messages are dropped."""

UNATTENDED: Final = "eci"
"""Party of all links without authentication: together they have the turns of one user."""


class MessageQueue:
    """Processes the messages of agents in turns of their users."""

    def __init__(self, links: Links, journal: Journal, config: BrokerConfig) -> None:
        self._links = links
        self._journal = journal
        self._turn_units = config.turn_units
        self._unsynced_max = config.unsynced_units_max
        self._fair_queue = FairQueue()
        self._began_at = self._owed_at = 0.0
        """Work that was done, and work that was owed, when this step began."""
        self.done_units = 0.0
        """Weight of the messages processed since the last :meth:`take_done`."""
        self._done: dict[int, int] = {}
        self._is_asked = False
        """True if another step was requested; it runs after the input that has arrived meanwhile."""
        self._held_at: float | None = None
        """Start of the step after which some users leave room for others; None if nobody has to."""
        self._follows = 1.0
        """Factor from the work of that step to all the work that it causes."""
        self._resume_at: float | None = None
        """Time at which the held users go on; None until the duration of the step is known."""
        self._served: dict[str, float] = {}
        """Units of work done in this step, by party."""
        self._active: set[str] = set()
        self._active_before: set[str] = set()
        self._active_until = 0.0
        self._requests: Counter[str] = Counter()
        """Requests other than publishes and acknowledgements in the present second, by party."""

    def serve_by(
        self,
        do: Callable[[Link, protocol.FromAgent | RemoteProtocolError], None],
        prematch: Callable[[LinkMessages, int], int],
    ) -> None:
        """Process each message by ``do``, after matching the publishes in one batch by ``prematch``."""
        self._do = do
        self._prematch = prematch

    def __len__(self) -> int:
        return len(self._fair_queue)

    def begin(self) -> None:
        """Begin a step."""
        self._served.clear()
        if self._links.now >= self._active_until:
            self._active_until = self._links.now + ACTIVE_S
            self._active_before, self._active = self._active, set()
            self._requests.clear()
        self._began_at, self._owed_at = self._journal.work, self._journal.owed

    def timer_fired(self) -> None:
        """Let held users go on, or first leave room for others."""
        self._is_asked = False
        if self._held_at is None:
            return
        now = self._links.now
        if self._resume_at is None:
            duration_s = (now - self._held_at) * self._follows
            self._resume_at = now + min(duration_s / max(1, len(self._fair_queue.held)), PAUSE_S_MAX)
        if now < self._resume_at:
            self._journal.emit_now(SetTimer(TURN, self._resume_at))
        else:
            self._held_at = self._resume_at = None
            self._fair_queue.release()

    def take_done(self) -> dict[int, int]:
        """Return how many messages of each link were processed since the last call."""
        done, self._done, self.done_units = self._done, {}, 0.0
        return done

    def arrived(self, several: Sequence[MessageArrived]) -> None:
        """Process these messages; messages beyond this step wait."""
        done = 0
        units = len(several) + sum([len(each.payload) for each in several]) / BYTES_A_UNIT
        if not self._fair_queue and self._room() >= units:
            done = self._process(several)
        for each in several[done:]:
            party = _party(self._links.get(each.link))
            if party == UNATTENDED and self._fair_queue.waiting(UNATTENDED) >= UNATTENDED_MAX:
                self._journal.tally.note("backlog.UNATTENDED_MAX", UNATTENDED, "datagram of the original ECI dropped")
            else:
                self._fair_queue.add(party, each)

    def go_on(self) -> None:
        """Process waiting messages as far as this step has room, and request another step if some are left."""
        while self._fair_queue.are_due and not self._is_asked and (room := self._room()) > 0:
            taken = self._fair_queue.take(room)
            done = self._process([each.message for each in taken], taken)
            self._fair_queue.give_back(taken[done:])
        if self._fair_queue.are_due and not self._is_asked and not self._is_unsynced():
            if self._is_contested():
                self._leave_room()
            self._is_asked = True
            self._journal.emit_now(SetTimer(TURN, self._links.now))

    def _leave_room(self) -> None:
        """Hold back users who used half of this step and have more messages, unless they only acknowledge."""
        costly = {party for party, units in self._served.items() if units >= self._turn_units / 2}
        held = self._fair_queue.hold(costly & (self._active | self._active_before))
        for party in held:
            self._journal.tally.note("broker.turn_units", party, REASON)
        if held and self._held_at is None:
            self._held_at = self._links.now
            work = max(1.0, self._journal.work - self._began_at)
            self._follows = 1 + (self._journal.owed - self._owed_at) / work

    def closes(self, link: Link) -> None:
        """Process the waiting messages of a closing link, except publishes, which its agent repeats on another link."""
        for waiting in self._fair_queue.remove(_party(link), link.link):
            message = _message(waiting.payload)
            self._done[link.link] = self._done.get(link.link, 0) + 1
            if not isinstance(message, _REPEATED) and self._links.is_open(link):
                self._do(link, message)
                self._links.flush()

    def _room(self) -> float:
        units = self._turn_units if self._is_contested() else ALONE_TURNS * self._turn_units
        return min(units - (self._journal.work - self._began_at), self._unsynced_max - self._journal.unsynced)

    def _note_request(self, party: str) -> None:
        """Count a request; many requests make a party active, as publishing does."""
        self._requests[party] += 1
        if self._requests[party] == REQUESTS_ACTIVE:
            self._active.add(party)

    def _is_contested(self) -> bool:
        return len(self._active) > 1 or bool(self._active_before - self._active and self._active)

    def _is_unsynced(self) -> bool:
        return self._journal.unsynced >= self._unsynced_max

    def _process(self, arrived: Sequence[MessageArrived], taken: Sequence[DueMessage] = ()) -> int:
        """Process messages until this step has no room left; return how many are done, at least one.

        ``taken`` are the turns that are charged with the cost of each message; empty for messages that did not wait.
        """
        journal, links, done, served, active = self._journal, self._links, self._done, self._served, self._active
        messages = [(each.link, _message(each.payload)) for each in arrived]
        end = journal.work + self._room()
        prematched = 0
        for place, (identity, message) in enumerate(messages):
            if place and journal.work >= end:
                self._prematch((), 0)
                return place
            link = links.get(identity)
            party = UNATTENDED if link is None or link.unattended else link.user
            # A party that only acknowledges the events of others is not active.
            if type(message) is protocol.Publish or type(message) is protocol.PublishFor:
                if place >= prematched:
                    prematched = self._prematch(messages, place)
                active.add(party)
                links.pace.note(identity)
            elif type(message) is not protocol.NotifyAck:
                self._note_request(party)
                links.pace.note(identity)
            before = journal.work
            weight = 1 + len(arrived[place].payload) / BYTES_A_UNIT
            journal.work = before + weight
            if link is not None:
                self._do(link, message)
                if links.ready:
                    links.flush()
            units = journal.work - before
            served[party] = served.get(party, 0.0) + units
            done[identity] = done.get(identity, 0) + 1
            self.done_units += weight
            if taken:
                self._fair_queue.charge(taken[place], units)
        if prematched:
            self._prematch((), 0)
        return len(messages)


_REPEATED: Final = (protocol.Publish, protocol.PublishFor, RemoteProtocolError)
"""Messages that are not processed when their link closes."""


def _party(link: Link | None) -> str:
    return UNATTENDED if link is None or link.unattended else link.user


def _message(payload: bytes) -> protocol.FromAgent | RemoteProtocolError:
    try:
        return protocol.decode_from_agent(payload)
    except RemoteProtocolError as error:
        return error
