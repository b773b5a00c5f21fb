"""Filters of ordered channels that other servers lead, which this server may give to its agents (SPEC N-02, N-03).

This server is to a leader what an agent is to its server: it requests the filters of a subject when one of its agents
does, holds them under a lease, and confirms each change once its own agents have. Agents get leases that end no later
than this one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Final

from wanderbus import protocol
from wanderbus.broker.interest.leader_lease import LeaderLease, WaitingRequest
from wanderbus.broker.links import Links
from wanderbus.broker.messages import FiltersArrived, LeaderLinkChanged, SendToLeader
from wanderbus.broker.state.journal import Journal
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.filters import Filter

LEASES_MAX: Final = 16_384
"""Subjects of which one server may have filters of leaders at once, for all its agents."""

REST_S_MIN: Final = 0.5
"""Shortest rest of a lease that an agent gets."""

SUSPENSION_S_MIN: Final = 0.1
"""Shortest suspension of the host that ends leases earlier: shorter than the margin of a lease."""


class LeaderFilters:
    """Requests the filters of subjects at the leaders of their channels, and knows for how long they may be used.

    :param channels: the channels of the domain; None if this server is alone
    """

    def __init__(self, journal: Journal, links: Links, channels: OwnChannels | None) -> None:
        self._journal = journal
        self._links = links
        self._channels = channels
        self._links_to: dict[str, int] = {}
        """Open link to each leader."""
        self._leases: dict[str, LeaderLease] = {}
        self._number = 0
        self._skew_s: float | None = None
        """Difference of the host's clock and the monotonic one, which stands still while the host is suspended."""

    @property
    def waiting(self) -> Collection[object]:
        """Return the requests of links that wait for leaders."""
        return [waiting for lease in self._leases.values() for waiting in lease.waiting.values()]

    def clock_read(self, host_us: int) -> None:
        """Take a reading of the host's clock; the time of a suspension counts for leases."""
        skew_s = host_us / 1e6 - self._links.now
        if not self._leases or self._skew_s is None or skew_s < self._skew_s:
            self._skew_s = skew_s
        elif (suspended_s := skew_s - self._skew_s) > SUSPENSION_S_MIN:
            self._skew_s = skew_s
            for each in self._leases.values():
                each.begin_earlier(suspended_s)

    def is_led_elsewhere(self, subject: str) -> bool:
        """Return whether another server leads the channel of ``subject``."""
        return self._channels is not None and not self._channels.leads(subject)

    def filters(self, subject: str) -> tuple[Filter, ...] | None:
        """Return the filters of ``subject``, None if every event has to be published."""
        lease = self._leases.get(subject)
        return None if lease is None else lease.filters

    def lease_s(self, subject: str, lease_s_max: float) -> float:
        """Return the time for which an agent may use the filters of ``subject``, 0 if it may not."""
        lease = self._leases.get(subject)
        if lease is None or not self._is_usable(lease):
            return 0.0
        return min(lease.until - self._links.now, lease_s_max)

    def waits(self, subject: str, link: int, number: int) -> bool:
        """Return whether request ``number`` of the agent on ``link`` has to wait for the leader.

        The leader is asked once the lease has to be renewed, or when it can be reached again.
        """
        assert self._channels is not None
        leader = self._channels.leader(subject)
        if (lease := self._leases.get(subject)) is None or lease.leader != leader:
            if lease is None and len(self._leases) >= LEASES_MAX:
                return False
            waiting = {} if lease is None else lease.waiting
            lease = self._leases[subject] = LeaderLease(0, 0.0, is_asked=False, leader=leader, waiting=waiting)
        if not lease.is_asked:
            if self._links.now < lease.ask_at:
                return False
            if leader in self._links_to:
                self._ask(subject, lease)
            elif self._is_usable(lease):
                return False
        lease.waiting[link] = WaitingRequest(link, subject, number)
        return True

    def link_changed(self, given: LeaderLinkChanged, watched: Container[str]) -> list[WaitingRequest]:
        """Note that the link to a leader has opened or closed; return the requests that wait for it no longer.

        Leases continue while it is closed. On a new link those of ``watched`` subjects, which agents here use, are
        renewed, so that the leader can change the filters.
        """
        of_leader = {subject: each for subject, each in self._leases.items() if each.leader == given.leader}
        if given.link is not None:
            self._links_to[given.leader] = given.link
            for subject, each in of_leader.items():
                if each.waiting or (subject in watched and self._is_usable(each)):
                    self._ask(subject, each)
            return []
        self._links_to.pop(given.leader, None)
        released = []
        for each in of_leader.values():
            if each.is_asked:
                each.is_asked, each.renew_at = False, self._links.now
            if self._is_usable(each):
                released += _release(each)
        return released

    def arrived(self, given: FiltersArrived) -> list[WaitingRequest]:
        """Use filters of a leader from now on; return the requests that have waited for them."""
        lease = self._leases.get(given.filters.subject)
        if lease is not None and lease.leader == given.leader and lease.arrived(given.filters, self._links.now):
            return _release(lease)
        return []

    def confirmation(self, given: FiltersArrived) -> Callable[[], None]:
        """Return what lets the leader know that no agent here uses earlier filters; it does nothing on a later link."""
        confirmed = protocol.ConfirmFilters(given.filters.subject, given.filters.version)
        output = SendToLeader(given.leader, self._links_to[given.leader], confirmed)
        return lambda: self._journal.emit_now(output)

    def sweep(self, watched: Container[str]) -> None:
        """Forget leases that have run out, except those of ``watched`` subjects, which agents here may still use."""
        now = self._links.now
        for subject, each in list(self._leases.items()):
            each.waiting = {link: one for link, one in each.waiting.items() if self._links.get(link) is not None}
            if (
                not each.is_asked
                and not each.waiting
                and max(each.until, each.ask_at) <= now
                and subject not in watched
            ):
                del self._leases[subject]

    def _is_usable(self, lease: LeaderLease) -> bool:
        return lease.filters is not None and lease.until - self._links.now >= REST_S_MIN

    def _ask(self, subject: str, lease: LeaderLease) -> None:
        self._number += 1
        lease.ask(self._number, self._links.now)
        # Agents report their counts to this server, so it reports none to the leader.
        request = protocol.RequestFilters(self._number, subject)
        self._journal.emit_now(SendToLeader(lease.leader, self._links_to[lease.leader], request))


def _release(lease: LeaderLease) -> list[WaitingRequest]:
    """Return the requests that wait, which then wait no longer."""
    released, lease.waiting = list(lease.waiting.values()), {}
    return released
