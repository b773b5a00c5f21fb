"""Messages of agents, done in bounded steps: what exceeds one step waits in fair turns between users.

A step does no more than ``turn_units`` of work, so that nobody else waits for longer than that takes, and none while
``unsynced_units_max`` wait for the disk, so that no user's events make everybody's sync long. What waits keeps its
sender's flow-control window closed: nothing is refused, dropped or reordered, its publisher just waits.

While others are active too, users who always have more to say leave room for them: after a step, *n* such users wait
for an *n*-th of the time that it took. So a single one has half of the server,
and all of it while nobody else is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from wanderbus import protocol
from wanderbus.broker.fair_queue import Taken, Turns, Waiting, weight_of
from wanderbus.broker.links import Links
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import SetTimer
from wanderbus.parameters.broker import BrokerConfig

Said: TypeAlias = Sequence[tuple[int, protocol.FromAgent | RemoteProtocolError]]
"""Links and the message of each; an error stands for a malformed one."""

TURN: Final = ("turn",)
"""Key of the timer of the next step."""

REASON: Final = "had more to say than fits a turn, and waited while others were served"
"""Reason by which waiting is counted."""

ALONE_TURNS: Final = 16
"""Turns that are one step while a single user is active: more together costs less for each."""

ACTIVE_S: Final = 1.0
"""For so long at least, and twice that at most, somebody counts as active after a word."""

REQUESTS_ACTIVE: Final = 20
"""Requests within a second by which somebody who publishes nothing counts as active; connecting takes fewer."""

PAUSE_S_MAX: Final = 0.1
"""Longest time for which those who have more to say wait between two steps."""

UNATTENDED_MAX: Final = 512
"""Messages of that party that wait; no window closes there, so more of them are dropped, as datagrams are."""

UNATTENDED: Final = "eci"
"""Party of all links on which nobody has proved to be anybody: those together have the turns of one user."""


class Backlog:
    """Does what agents say by ``do``, and has what is to be published matched ahead by ``prematch``."""

    def __init__(
        self,
        links: Links,
        journal: Journal,
        config: BrokerConfig,
        do: Callable[[Link, protocol.FromAgent | RemoteProtocolError], None],
        prematch: Callable[[Said, int], int],
    ) -> None:
        self._links = links
        self._journal = journal
        self._do = do
        self._prematch = prematch
        self._turn_units = config.turn_units
        self._unsynced_max = config.unsynced_units_max
        self._turns = Turns()
        self._began_at = self._owed_at = 0.0
        """Work that had been done, and was owed, when this step began."""
        self.done_units = 0.0
        """Weight of what was done since :meth:`take_done` was called last."""
        self._done: dict[int, int] = {}
        self._is_asked = False
        """Whether another step was asked for, which comes once whatever has arrived meanwhile was read."""
        self._held_at: float | None = None
        """When the step began after which some have to leave room; None if nobody has to."""
        self._follows = 1.0
        """How many times the work of that step it causes in all."""
        self._resume_at: float | None = None
        """When those go on, once it is known how long the step took."""
        self._served: dict[str, float] = {}
        """By party: units of what was done of theirs in this step."""
        self._active: set[str] = set()
        self._active_before: set[str] = set()
        self._active_until = 0.0
        self._requests: Counter[str] = Counter()
        """By party, in the present second: what it said besides publishing and acknowledging."""

    def __len__(self) -> int:
        return len(self._turns)

    def begin(self) -> None:
        """Begin a step."""
        self._served.clear()
        if self._links.now >= self._active_until:
            self._active_until = self._links.now + ACTIVE_S
            self._active_before, self._active = self._active, set()
            self._requests.clear()
        self._began_at, self._owed_at = self._journal.work, self._journal.owed

    def timer_fired(self) -> None:
        """Let those who have more to say go on, or first leave room for others."""
        self._is_asked = False
        if self._held_at is None:
            return
        now = self._links.now
        if self._resume_at is None:
            took_s = (now - self._held_at) * self._follows
            self._resume_at = now + min(took_s / max(1, len(self._turns.held)), PAUSE_S_MAX)
        if now < self._resume_at:
            self._journal.say_now(SetTimer(TURN, self._resume_at))
        else:
            self._held_at = self._resume_at = None
            self._turns.release()

    def take_done(self) -> dict[int, int]:
        """Return how many messages of each link are done since the last call."""
        done, self._done, self.done_units = self._done, {}, 0.0
        return done

    def arrived(self, several: Sequence[tuple[int, bytes]]) -> None:
        """Handle the messages of these links; what is too much for this step waits."""
        done = 0
        if not self._turns and self._room() >= sum([weight_of(payload) for _, payload in several]):
            done = self._converse(several)
        for identity, payload in several[done:]:
            party = _party(self._links.get(identity))
            if party == UNATTENDED and self._turns.waiting(UNATTENDED) >= UNATTENDED_MAX:
                self._journal.tally.note("backlog.UNATTENDED_MAX", UNATTENDED, "datagram of the original ECI dropped")
            else:
                self._turns.add(party, Waiting(identity, payload))

    def go_on(self) -> None:
        """Do as much of what waits as this step has room for, and ask for another step if some is left."""
        while self._turns.are_due and not self._is_asked and (room := self._room()) > 0:
            taken = self._turns.take(room)
            done = self._converse([each.message for each in taken], taken)
            self._turns.give_back(taken[done:])
        if self._turns.are_due and not self._is_asked and not self._is_unsynced():
            if self._is_contested():
                self._leave_room()
            self._is_asked = True
            self._journal.say_now(SetTimer(TURN, self._links.now))

    def _leave_room(self) -> None:
        """Hold back those who took half of this step and have more to say, but not who just acknowledges."""
        costly = {party for party, units in self._served.items() if units >= self._turn_units / 2}
        held = self._turns.hold(costly & (self._active | self._active_before))
        for party in held:
            self._journal.tally.note("broker.turn_units", party, REASON)
        if held and self._held_at is None:
            self._held_at = self._links.now
            work = max(1.0, self._journal.work - self._began_at)
            self._follows = 1 + (self._journal.owed - self._owed_at) / work

    def closes(self, link: Link) -> None:
        """Do what waits of a link that is about to close, but for publishes, which its agent repeats elsewhere."""
        for waiting in self._turns.remove(_party(link), link.link):
            message = _message(waiting.payload)
            self._done[link.link] = self._done.get(link.link, 0) + 1
            if not isinstance(message, protocol.Publish | RemoteProtocolError) and self._links.get(link.link) is link:
                self._do(link, message)
                self._links.flush()

    def _room(self) -> float:
        units = self._turn_units if self._is_contested() else ALONE_TURNS * self._turn_units
        return min(units - (self._journal.work - self._began_at), self._unsynced_max - self._journal.unsynced)

    def _note_request(self, party: str) -> None:
        """Note who makes many requests, which is as good as publishing."""
        self._requests[party] += 1
        if self._requests[party] == REQUESTS_ACTIVE:
            self._active.add(party)

    def _is_contested(self) -> bool:
        return len(self._active) > 1 or bool(self._active_before - self._active and self._active)

    def _is_unsynced(self) -> bool:
        return self._journal.unsynced >= self._unsynced_max

    def _converse(self, came: Sequence[tuple[int, bytes]], taken: Sequence[Taken] = ()) -> int:
        """Do what came until there is no room in this step; return how much of it is done, one at least.

        ``taken`` says whose turn each is, which is charged with what it costs; nothing for what did not wait.
        """
        journal, links, done, served = self._journal, self._links, self._done, self._served
        said = [(identity, _message(payload)) for identity, payload in came]
        end = journal.work + self._room()
        prematched = 0
        for place, (identity, message) in enumerate(said):
            if place and journal.work >= end:
                self._prematch((), 0)
                return place
            link = links.get(identity)
            party = _party(link)
            # Who just acknowledges what others publish is not active.
            if type(message) is protocol.Publish:
                if place >= prematched:
                    prematched = self._prematch(said, place)
                self._active.add(party)
            elif type(message) is not protocol.Take:
                self._note_request(party)
            before = journal.work
            weight = weight_of(came[place][1])
            journal.work += weight
            if link is not None:
                self._do(link, message)
                links.flush()
            units = journal.work - before
            served[party] = served.get(party, 0.0) + units
            done[identity] = done.get(identity, 0) + 1
            self.done_units += weight
            if taken:
                self._turns.charge(taken[place], units)
        if prematched:
            self._prematch((), 0)
        return len(said)


def _party(link: Link | None) -> str:
    return UNATTENDED if link is None or link.unattended else link.user


def _message(payload: bytes) -> protocol.FromAgent | RemoteProtocolError:
    try:
        return protocol.decode_from_agent(payload)
    except RemoteProtocolError as error:
        return error
