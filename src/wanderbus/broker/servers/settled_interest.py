"""Other servers that this one waits for after a change of the domain's file (SPEC J-08, J-10, K-02).

A leader may accept an event only if it has the subscriptions of every other server that may want it: the event is in no
queue of a server that subscribes later. These subscriptions are durable here, so a restart changes nothing. After a
change of the file that moves channels, they are those of other channels, and a new log has none. Then every server has
to report once that its interest is complete.

A server that still runs with the former file accepts events under it. It does not know new subscriptions, so these do
not count before every other server has had a link here under the new file. A server that has joined the domain also
publishes nothing directly before: a server with a file without it could not take what follows from such an event.

Nobody waits for servers that have joined since: nothing that they want counts before all others have it.
"""

from __future__ import annotations

from collections.abc import Callable

from wanderbus import records
from wanderbus.broker.publish.decisions import Rejected
from wanderbus.broker.servers.server_users import server_of
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.start import has_moved, newcomers, readable_as
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.own_channels import OwnChannels


class SettledInterest:
    """Other servers that have not reported all their interest, and those that may have the former file.

    :param channels: the channels of the domain; None if this server is alone
    :param domain: the domain of the servers, which their users here have
    """

    def __init__(
        self,
        state: BrokerState,
        journal: Journal,
        channels: OwnChannels | None,
        domain: str,
    ) -> None:
        self._state = state
        self._journal = journal
        self.channels = channels
        """Channels of the domain, None if this server is alone."""
        self._domain = domain
        self.paused: set[int] = set()
        """Channel groups whose events wait here, because their leader is about to change."""
        self.missing: list[str] = []
        """Servers whose interest is not complete here, in the order of the domain; empty if this one leads nothing."""
        self.unmet: list[str] = []
        """Servers that may still have a former file; empty if the file has not changed."""
        self._joins = False
        """True for a server that has joined, and may not have had a link with all others yet."""
        self._go_on: Callable[[], None] = lambda: None
        if channels is None:
            return
        is_same = state.servers[state.server].layout == channels.layout
        known = dict(state.settled) if is_same else {}
        joined = newcomers(state, channels.layout, channels.others)
        earlier = [each for each in channels.others if each not in joined]
        if channels.leads_ordered:
            settled = [name for name, row in known.items() if row.incarnation == readable_as(state)]
            self.missing = [each for each in earlier if each not in settled]
        self._joins = channels.joins and not state.servers[state.server].is_known
        if self._joins or has_moved(state, channels.layout):
            self.unmet = [each for each in earlier if each not in known]

    def resume_by(self, go_on: Callable[[], None]) -> None:
        """Let ``go_on`` process the events that have waited for the last of the ``awaited`` servers."""
        self._go_on = go_on

    def begin_again(self) -> None:
        """Wait for all other servers: they may have reported more since the copy that the log turned out to be."""
        if self.channels is not None and self.channels.leads_ordered:
            self.missing = list(self.channels.others)

    @property
    def holds(self) -> bool:
        """Return whether events of some channels wait."""
        return bool(self.missing or self.paused or self.is_joining)

    @property
    def awaited(self) -> list[str]:
        """Return the servers for which events wait here."""
        return self.missing or (self.unmet if self.is_joining else [])

    @property
    def is_joining(self) -> bool:
        """Return whether this server has joined the domain, and others may have a file without it."""
        return bool(self.unmet) and self._joins

    def is_paused(self, subject: str) -> bool:
        """Return whether events of ``subject`` wait for a change of their leader."""
        return bool(self.paused) and self.channels is not None and self.channels.ordered_group(subject) in self.paused

    def refusal(self, subject: str) -> Rejected | None:
        """Return why an event of a channel that this server leads cannot be accepted yet, None if it can."""
        channels = self.channels
        if channels is None or not self.holds:
            return None
        if self.is_paused(subject):
            return Rejected(
                f"the channel of {subject!r} is about to have another leader; try again later", "routes_unknown"
            )
        is_direct = channels.ordered_group(subject) is None
        waits = self.is_joining if is_direct else self.missing and channels.leads_in_order(subject)
        if not waits:
            return None
        reason = f"{self.awaited[0]} has not reported to {channels.server} yet which events of {subject!r} it wants"
        return Rejected(f"{reason}; try again later", "routes_unknown")

    def met(self, user: str) -> str | None:
        """Note a link of another server, which has the same file; return its name if it may have had a former one."""
        if (server := server_of(user, self._domain)) in self.unmet:
            self.unmet.remove(server)
            self._journal.write(records.ServerMet(at_us=self._state.wall_us, server=server), urgent=True)
            if not self.unmet:
                self._go_on()
            return server
        return None

    def settle(self, user: str) -> None:
        """Take the report of a server that its subscriptions here are all that it wants."""
        if (server := server_of(user, self._domain)) in self.missing:
            self.missing.remove(server)
            self._journal.write(records.InterestSettled(at_us=self._state.wall_us, server=server), urgent=True)
            if not self.missing:
                self._go_on()
