"""Rollback of the log: the server's data was replaced by an earlier copy of it (decision 0108).

A log cannot tell by itself that it is a copy. Those who remember what it has lost can: an agent by its last position
and the last ids that were confirmed to it, a server of the domain by its cursor. The log then begins another epoch, and
each subscription gets one gap for what nobody knows any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from wanderbus import protocol, records
from wanderbus.broker.links import Links
from wanderbus.broker.publish.notifying import notification_of
from wanderbus.broker.readers import Link
from wanderbus.broker.rollback.messages import LogRolledBack
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.state.start import has_lost
from wanderbus.broker.state.state import BrokerState
from wanderbus.epochs import Epochs, has_position, is_foreign, with_epoch
from wanderbus.event import EventId, Position
from wanderbus.machine import SetTimer

GAP_REASON: Final = "server_restored"
"""Reason of a gap after events that a restored log has lost."""


class Decentralised(Protocol):
    """The part for decentralised channels."""

    def stale_routes(self) -> tuple[str, ...]:
        """Stop using the routes that may have changed since the copy; return their keys."""
        ...

    def begin_again(self) -> None:
        """Go on in the incarnation that the state has begun."""
        ...


TIMER: Final = ("rollback",)

SESSIONS_PER_STEP: Final = 200
"""Sessions that get their gaps in one step; bounds the time that others wait, and the size of a record."""


class Rollback:
    """Recognises a rollback, and puts a gap into every subscription."""

    def __init__(self, state: BrokerState, journal: Journal, links: Links, settled: SettledInterest) -> None:
        self._state = state
        self._journal = journal
        self._links = links
        self._settled = settled
        self._decentralised: Decentralised | None = None
        self._doubted = 0
        """The last link on which a user's word alone has spoken of a rollback: one gap for each link is enough."""
        self._owed: Iterator[SessionRow] = iter(())
        self._has_more = False

    def has_decentralised(self, decentralised: Decentralised) -> None:
        """Take over the part for decentralised channels, which needs this one."""
        self._decentralised = decentralised

    def start(self, reason: str) -> None:
        """Continue with the gaps of an earlier life; with a ``reason``, the log is known to be an earlier copy."""
        if reason:
            self.found(reason)
        else:
            self._begin()

    def check(self, link: Link, session: SessionRow, positions: Iterable[Position | None]) -> None:
        """Compare positions in ``session`` with its numbers; report a rollback if one of them is not in it.

        A position from before the session was made proves nothing: an earlier session of this name was removed, or
        an earlier log. An agent counts such a number to the first epoch of its attachment, which the session may not
        have begun yet. Nor does a position prove anything that another server of the domain gave, as far as that is
        certain.
        """
        begin, known = session.epochs[0][0], _epochs_of(self._state, session)
        for position in positions:
            if position is None or session.has(position) or has_position(known, position, session.next):
                continue
            if is_foreign(known, position.epoch, position.number):
                continue
            what = f"has position {position.number} of epoch {position.epoch} in the session {session.name!r}"
            self._proven(link, session, position.epoch, what, is_word=position.epoch < begin)

    def check_ids(self, link: Link, session: SessionRow, seen: Iterable[EventId]) -> None:
        """Compare ids that were confirmed to a device with the log; report a rollback if it lacks one."""
        for each in seen:
            if has_lost(self._state, each):
                self._proven(link, session, each.incarnation, f"has {each}")

    def found(self, reason: str) -> None:
        """Begin another epoch, and give every subscription a gap."""
        state = self._state
        epoch = max(state.epoch + 1, state.wall_us)
        stale = () if self._decentralised is None else self._decentralised.stale_routes()
        record = records.RolledBack(at_us=state.wall_us, epoch=epoch, reason=reason, stale_routes=stale, is_marked=True)
        self._journal.write(record, urgent=True)
        self._journal.emit(LogRolledBack(reason))
        self._settled.begin_again()
        if self._decentralised is not None:
            self._decentralised.begin_again()
        for link in self._links.all():
            if link.session is not None:
                session = state.sessions[session_key(link.user, link.session)]
                self._links.send(link, attachment_of(state, link, session, self._links.event_bytes_max))
        self._begin()
        self.go_on()  # before the next event: what is lost was before it

    def found_by(self, server: str, epoch: int = 0) -> bool:
        """Take the proof of another server, for something given in ``epoch`` if that is known.

        Return False if the rollback was found already.
        """
        state, last = self._state, self._state.servers[self._state.server].rolled_back
        begun = next((each for each, _ in state.epochs if each > epoch), None) if epoch else state.epoch
        if begun is not None and begun <= last:
            return False
        self.found(f"{server} has acknowledgements or events of this server, which the log does not have")
        return True

    def go_on(self) -> None:
        """Write the next gaps."""
        if not self._has_more:
            return
        several: list[records.Notified] = []
        for session in self._owed:
            rows = [self._state.subscriptions[each] for each in session.subscriptions]
            several.append(notification_of(session, session.next, rows))
            if len(several) == SESSIONS_PER_STEP:
                break
        else:
            self._has_more = False
        self._lose(several, self._state.servers[self._state.server].rolled_back)
        if self._has_more:
            self._journal.emit_now(SetTimer(TIMER, self._links.now))

    def _begin(self) -> None:
        """Find the sessions that are owed a gap, those with links first."""
        state, rolled_back = self._state, self._state.servers[self._state.server].rolled_back

        def is_owed(session: SessionRow) -> bool:
            return session.rolled_back < rolled_back and bool(session.subscriptions)

        owed = [session for session in state.sessions.values() if is_owed(session)]
        owed.sort(key=lambda session: not self._links.of_session(session.key))
        self._owed, self._has_more = filter(is_owed, owed), bool(owed)

    def _proven(self, link: Link, session: SessionRow, epoch: int, what: str, *, is_word: bool = False) -> None:
        """Take a proof; one that is no more than a user's ``word`` concerns its session alone.

        A log is replaced while its server is stopped, so each start is one rollback at most. This bounds what a user
        can do to the others by a false proof.
        """
        state, reason = self._state, f"{link.user} on device {link.device} {what}, which the log does not have"
        start = next((each for each, _ in state.epochs if each > epoch), None)
        if not is_word and (link.is_server if start is None else start > state.servers[state.server].rolled_back):
            self.found(reason)
        elif (is_word or start is None) and session.subscriptions and self._doubted != link.link:
            self._doubted = link.link
            self._journal.emit(LogRolledBack(reason, session.name))
            rows = [state.subscriptions[each] for each in session.subscriptions]
            self._lose([notification_of(session, session.next, rows)], 0)

    def _lose(self, several: list[records.Notified], rolled_back: int) -> None:
        if not several:
            return
        state = self._state
        lost = records.EventsLost(
            at_us=state.wall_us, reason=GAP_REASON, notified=tuple(several), rolled_back=rolled_back
        )
        self._journal.write(lost, urgent=True)
        for each in several:
            self._links.notify(state.sessions[session_key(each.user, each.session)], each.subscriptions)


def attachment_of(
    state: BrokerState, link: Link, session: SessionRow, event_bytes_max: int, removed: str = "", server: str = ""
) -> protocol.Attachment:
    """Return the epochs of a session; its next number is given in the latest epoch of the log.

    The device is at ``server`` now, "" if it does not have to know.
    """
    epochs = _epochs_of(state, session)
    if link.unattended:
        # Without an order of messages, an epoch is known only after numbers of it. A rollback is what has to be known.
        rolled_back = state.servers[state.server].rolled_back
        epochs = (epochs[0], *[each for each in epochs[1:] if rolled_back and each[0] >= rolled_back][:1])
    *earlier, (present, first) = epochs
    taken = state.devices[link.key].taken if link.reads_whole else 0
    return protocol.Attachment(present, removed, first, tuple(earlier), taken, event_bytes_max, server)


def _epochs_of(state: BrokerState, session: SessionRow) -> Epochs:
    """Return the epochs of a session, also that of the log in which it has given no number yet."""
    if session.epoch < state.epoch:
        return with_epoch(session.epochs, state.epoch, session.next)
    return session.epochs
