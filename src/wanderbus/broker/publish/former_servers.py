"""Devices that were at another server before: what they publish here follows what they did there (decision 0149).

A publish to a decentralised channel is recognised when it is repeated, and ordered, by the server of its device alone.
So a device says at which server it was, and its publishes to these channels wait here until that server has said what
it knows of the device, and until everything is delivered here that was delivered there. Those to ordered channels do
not wait: their leaders recognise and order them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.publish.decisions import Rejected
from wanderbus.broker.publish.held_publishes import HeldPublishes, PublisherMessage
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.sessions.handover_messages import (
    FormerServerAsked,
    FormerServerSilent,
    PastQuestion,
    PastReported,
)
from wanderbus.broker.state.decentralised_state import decode_past
from wanderbus.errors import RemoteProtocolError

ASKED_MAX: Final = 512
"""Questions about one device on one link: twice as many as a domain has servers; then it waits until it calls again."""


class FormerServers:
    """Lets publishes wait for the servers at which their devices were.

    :param decentralised: the part for decentralised channels; without it nothing waits
    """

    def __init__(self, basics: Basics, decentralised: DecentralisedEvents | None) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._decentralised = decentralised
        self._is_alone = basics.channels is None
        self._publish: Callable[[Link, PublisherMessage], None] = lambda link, message: None
        self.waiting: dict[int, tuple[Link, tuple[str, ...]]] = {}
        """Devices that wait by the number of their link, and the servers that were asked, in order."""
        self._waiting_most = 0
        """Number of them above which those whose link is closed are removed."""
        self._held: HeldPublishes[PublisherMessage] = HeldPublishes(basics.links)

    def serve_by(self, publish: Callable[[Link, PublisherMessage], None]) -> None:
        """Let ``publish`` process what has waited."""
        self._publish = publish

    def attached(self, link: Link, was_at: str) -> str:
        """Take the server at which a device was; return the name of this one if the device is to name it next time.

        That is "" while it waits, and where there is no other server.
        """
        own = self._state.server
        if self._decentralised is None:
            return "" if self._is_alone else own
        if was_at == own or was_at not in self._decentralised.channels.others:
            return own
        if len(self.waiting) > self._waiting_most:
            self.waiting = {each: other for each, other in self.waiting.items() if self._links.is_open(other[0])}
            self._waiting_most = 2 * len(self.waiting) + 1
        self._ask(link, (was_at,))
        return ""

    def _ask(self, link: Link, servers: tuple[str, ...], named: str = "") -> None:
        self.waiting[link.link] = link, servers
        question = PastQuestion(link.user, link.session or "", link.device, named)
        self._journal.emit(FormerServerAsked(servers[-1], link.link, question))

    def holds(self, link: Link, publisher: str, subject: str) -> bool:
        """Return whether a publish of a device has to wait, or one before it does."""
        assert self._decentralised is not None
        return link.link in self.waiting and (self._decentralised.has(subject) or self._held.has(publisher))

    def has(self, publisher: str) -> bool:
        """Return whether publishes of a publisher wait."""
        return self._held.has(publisher)

    def hold(self, link: Link, publisher: str, event_bytes: int, message: PublisherMessage) -> Rejected | None:
        """Let a publish wait; return why it is refused instead."""
        if self._held.add(link, publisher, event_bytes, message):
            return None
        reason = (
            f"too many events wait for {self.waiting[link.link][1][-1]}, where this device was before; try again later"
        )
        return Rejected(reason, "routes_unknown")

    def silent(self, given: FormerServerSilent) -> None:
        """Tell a device that its former server does not answer."""
        link, servers = self.waiting.get(given.request, (None, ()))
        if link is not None and link.knows_waits and self._links.is_open(link):
            reason = (
                f"{servers[-1]}, where this device was before, cannot be reached; it knows what was published there"
            )
            self._links.send(link, protocol.PublishesWait(reason))

    def reported(self, given: PastReported) -> None:
        """Take what a former server knows of a device."""
        link, servers = self.waiting.get(given.request, (None, ()))
        if link is None or servers[-1] != given.server or self._decentralised is None:
            return
        try:
            past = decode_past(given.past.past)
        except RemoteProtocolError:
            return  # the device waits until that server says what can be read
        self._decentralised.after_past(given.server, past, partial(self._learn, link, given))

    def _learn(self, link: Link, given: PastReported) -> None:
        """Add what a former server knows of a device, and ask the one to which it had gone from there, if any."""
        _, servers = self.waiting.get(given.request, (None, ()))
        if not self._links.is_open(link) or servers[-1:] != (given.server,):
            return
        known = given.past
        assert self._decentralised is not None
        # A server that has left is empty: what it knew has gone elsewhere with the device's session.
        is_asked = known.next_server in self._decentralised.channels.others
        following = known.next_server if is_asked else ""
        if known.publishers or self._state.devices[link.key].gone_to != following:
            came = records.DeviceCame(
                at_us=self._state.wall_us,
                user=link.user,
                device=link.device,
                publishers=known.publishers,
                following=following,
            )
            self._journal.write(came, urgent=True)
        if following:
            # Servers that name each other have all lost the device on its way: the last one names this server instead.
            # Each is asked twice before, because it may have come back to one that was asked and had lost it then.
            is_circle = servers.count(following) > 1 and not known.has_moved
            if len(servers) < ASKED_MAX:
                next_server, named = (given.server, following) if is_circle else (following, "")
                self._ask(link, (*servers, next_server), named)
            return
        del self.waiting[link.link]
        if link.knows_waits:
            self._links.send(link, protocol.PublishesWait("", self._state.server))
        for waiting, message in list(self._held.take()):
            self._publish(waiting, message)
