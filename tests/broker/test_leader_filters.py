"""Filters of channels that another server leads, for the agents of this server (SPEC N-02, N-03)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.access_desk import NORTHERN, OWN, AccessDesk
from tests.broker.desk import ALICE, BOB
from tests.broker.test_publisher_filters import LEASE_S, done, publisher, requested, subscribe, wants
from wanderbus.broker.interest import leader_filters
from wanderbus.broker.interest.leader_filters import REST_S_MIN
from wanderbus.broker.messages import FiltersArrived, InterestEffective, LeaderLinkChanged, SendToLeader
from wanderbus.machine import Output
from wanderbus.protocol import Attach, ConfirmFilters, Filters, Kick, ReleaseFilters, RequestFilters
from wanderbus.protocol.leased_filters import LEASE_MARGIN, RENEWED_AFTER, RETRY_S

OWN_LEASE_S = LEASE_S * (1 - LEASE_MARGIN)
"""Time for which this server may use the filters of the leader."""


class LedDesk(AccessDesk):
    """A desk of the server ``south`` with a link to the leader ``north``."""

    def __init__(self) -> None:
        self.sent: list[SendToLeader] = []
        super().__init__()
        self.link_to_leader(1)

    def perform(self, outputs: Sequence[Output]) -> None:
        """Collect what is sent to the leader, and execute the others."""
        self.sent += [each for each in outputs if isinstance(each, SendToLeader)]
        super().perform(outputs)

    def link_to_leader(self, link: int | None) -> None:
        """Open a link to the leader, or close it."""
        self.give(LeaderLinkChanged("north", link))

    def asked(self) -> list[int]:
        """The numbers of the requests at the leader."""
        return [each.message.number for each in self.sent if isinstance(each.message, RequestFilters)]

    def confirmed(self) -> list[int]:
        """The versions that were confirmed to the leader."""
        return [each.message.version for each in self.sent if isinstance(each.message, ConfirmFilters)]

    def leader_sends(
        self, version: int, *expressions: str, number: int = 0, subject: str = NORTHERN, everything: bool = False
    ) -> None:
        """Let filters of the leader arrive, by default as a change without a request."""
        filters = Filters(number, subject, version, LEASE_S, None if everything else expressions)
        self.give(FiltersArrived("north", filters))

    def filtering(self, user: str = BOB, *, number: int = 1, epoch: int = 1) -> int:
        """The link of an agent that has filters of the northern subject, by an answer of the leader to N == 1."""
        link = publisher(self, user, epoch=epoch)
        asked = len(self.asked())
        self.send(link, RequestFilters(number, NORTHERN))
        if len(self.asked()) > asked:
            self.leader_sends(1, "N == 1", number=self.asked()[-1])
        self.send(link, ConfirmFilters(NORTHERN, self.last(link).version))
        return link

    def last(self, link: int) -> Filters:
        """The last filters that an agent was sent."""
        return self.received(link, Filters)[-1]

    def confirms(self, link: int) -> None:
        """Let an agent confirm what it was sent last."""
        self.send(link, ConfirmFilters(NORTHERN, self.last(link).version))


@pytest.fixture
def desk() -> LedDesk:
    return LedDesk()


def test_a_request_waits_for_the_answer_of_the_leader(desk: LedDesk) -> None:
    bob = publisher(desk)
    desk.send(bob, RequestFilters(7, NORTHERN, 5, 3))
    assert desk.received(bob, Filters) == []
    # The counts are those of this server, which has them from its agent.
    assert desk.sent == [SendToLeader("north", 1, RequestFilters(1, NORTHERN))]
    desk.later(1.0)
    desk.leader_sends(41, "N == 1", number=1)
    answer = desk.last(bob)
    assert (answer.number, answer.lease_s) == (7, OWN_LEASE_S - 1.0)
    assert [n for n in range(3) if wants(answer, n)] == [1]
    assert desk.confirmed() == [41]


def test_the_lease_of_an_agent_ends_no_later_than_that_of_its_server(desk: LedDesk) -> None:
    desk.filtering()
    desk.later(3.0)
    alice = desk.filtering(ALICE)
    assert len(desk.asked()) == 1
    assert desk.last(alice).lease_s == OWN_LEASE_S - 3.0


def test_the_leader_is_asked_again_when_an_agent_asks_and_not_otherwise(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.later(RENEWED_AFTER * LEASE_S - 0.1)
    desk.send(bob, RequestFilters(2, NORTHERN))
    assert len(desk.asked()) == 1
    desk.confirms(bob)
    desk.later(0.1)
    desk.send(bob, RequestFilters(3, NORTHERN))
    assert len(desk.asked()) == 2
    assert desk.last(bob).number == 2
    desk.leader_sends(2, "N == 2", number=2)
    assert (desk.last(bob).number, desk.last(bob).lease_s) == (3, OWN_LEASE_S)
    desk.confirms(bob)
    desk.later(10 * LEASE_S)
    assert len(desk.asked()) == 2


def test_a_change_is_confirmed_once_all_agents_have_confirmed_it(desk: LedDesk) -> None:
    bob, alice = desk.filtering(), desk.filtering(ALICE)
    desk.leader_sends(2, "N == 1", "N == 2")
    for link in (bob, alice):
        assert [n for n in range(4) if wants(desk.last(link), n)] == [1, 2]
        assert desk.confirmed() == [1]
        desk.confirms(link)
    assert desk.confirmed() == [1, 2]


def test_narrower_filters_are_confirmed_at_once_and_used_after_the_next_request(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.leader_sends(2, number=0)
    assert desk.confirmed() == [1, 2]
    assert len(desk.received(bob, Filters)) == 1
    desk.send(bob, RequestFilters(2, NORTHERN))
    assert desk.last(bob).expressions == ()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_change_is_confirmed_when_the_lease_of_an_agent_that_does_not_answer_has_run_out(
    desk: LedDesk, is_closed: bool
) -> None:
    bob = desk.filtering()
    desk.later(2.0)
    if is_closed:
        desk.close(bob)
    desk.leader_sends(2, "N == 2")
    desk.later(OWN_LEASE_S - 2.1)
    assert desk.confirmed() == [1]
    desk.later(0.2)
    assert desk.confirmed() == [1, 2]


def test_a_change_waits_for_no_agent_that_has_attached_again_or_released_its_filters(desk: LedDesk) -> None:
    desk.filtering()
    alice = desk.filtering(ALICE)
    desk.leader_sends(2, "N == 2")
    publisher(desk)
    assert desk.confirmed() == [1]
    desk.send(alice, ReleaseFilters())
    assert desk.confirmed() == [1, 2]


def test_a_change_waits_for_agents_of_the_previous_life_after_a_restart(desk: LedDesk) -> None:
    desk.filtering()
    desk.restart()
    desk.link_to_leader(2)
    desk.sent.clear()
    alice = publisher(desk, ALICE)
    desk.send(alice, RequestFilters(1, NORTHERN))
    desk.leader_sends(5, "N == 2", number=1)
    assert [n for n in range(4) if wants(desk.last(alice), n)] == [2]
    assert desk.confirmed() == []
    publisher(desk)
    assert desk.confirmed() == [5]


def test_a_leader_without_filters_lets_every_event_through_for_a_while(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.leader_sends(2, everything=True)
    assert desk.last(bob).expressions is None
    assert desk.confirmed() == [1]
    desk.confirms(bob)
    assert desk.confirmed() == [1, 2]
    assert requested(desk, bob, 2, NORTHERN).expressions is None
    desk.later(RETRY_S)
    desk.send(bob, RequestFilters(3, NORTHERN))
    assert len(desk.asked()) == 2


def test_requests_wait_while_the_leader_cannot_be_reached(desk: LedDesk) -> None:
    bob, alice = publisher(desk), publisher(desk, ALICE)
    desk.send(bob, RequestFilters(5, NORTHERN))
    desk.link_to_leader(None)
    desk.send(alice, RequestFilters(6, NORTHERN))
    assert len(desk.asked()) == 1
    desk.link_to_leader(2)
    assert desk.asked() == [1, 2]
    assert desk.received(bob, Filters) == []
    desk.leader_sends(1, "N == 1", number=2)
    assert (desk.last(bob).number, desk.last(alice).number) == (5, 6)


def test_a_lease_continues_while_the_leader_cannot_be_reached(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.link_to_leader(None)
    desk.later(6.0)
    assert requested(desk, bob, 2, NORTHERN).lease_s == OWN_LEASE_S - 6.0
    desk.later(OWN_LEASE_S - 6.0 - REST_S_MIN + 0.1)
    desk.send(bob, RequestFilters(3, NORTHERN))
    assert desk.last(bob).number == 2
    desk.link_to_leader(2)
    desk.leader_sends(1, "N == 2", number=2)
    assert desk.last(bob).number == 3


def test_a_request_gets_the_rest_of_a_lease_when_the_link_to_the_leader_closes(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.later(5.0)
    desk.send(bob, RequestFilters(2, NORTHERN))
    assert len(desk.received(bob, Filters)) == 1
    desk.link_to_leader(None)
    assert (desk.last(bob).number, desk.last(bob).lease_s) == (2, OWN_LEASE_S - 5.0)


def test_a_new_link_renews_the_leases_that_agents_use(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.link_to_leader(None)
    desk.link_to_leader(2)
    assert [each.link for each in desk.sent] == [1, 1, 2]
    desk.leader_sends(5, "N == 5", number=2)
    assert [n for n in range(6) if wants(desk.last(bob), n)] == [5]
    desk.confirms(bob)
    assert desk.sent[-1] == SendToLeader("north", 2, ConfirmFilters(NORTHERN, 5))
    desk.send(bob, ReleaseFilters())
    desk.link_to_leader(None)
    desk.link_to_leader(3)
    assert len(desk.asked()) == 2


def test_a_confirmation_that_has_waited_is_for_the_link_of_the_change(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.leader_sends(2, "N == 2")
    desk.link_to_leader(None)
    desk.link_to_leader(2)
    desk.confirms(bob)
    assert [each.link for each in desk.sent if isinstance(each.message, ConfirmFilters)] == [1, 1]


def test_the_time_of_a_suspension_of_the_host_counts(desk: LedDesk) -> None:
    """The monotonic clock stands still meanwhile, and the host's clock does not."""
    bob = desk.filtering()
    desk.offset_us += round(LEASE_S * 1e6)
    desk.send(bob, RequestFilters(2, NORTHERN))
    assert len(desk.asked()) == 2
    assert len(desk.received(bob, Filters)) == 1
    desk.offset_us += round(LEASE_S * 1e6)
    desk.leader_sends(2, "N == 1", number=2)
    assert desk.last(bob).expressions is None


def test_a_clock_that_is_set_back_ends_no_lease(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.offset_us -= round(LEASE_S * 1e6)
    assert requested(desk, bob, 2, NORTHERN).lease_s == OWN_LEASE_S
    desk.offset_us += round(LEASE_S * 1e6)
    desk.send(bob, RequestFilters(3, NORTHERN))
    assert len(desk.asked()) == 2


def test_subscriptions_here_are_the_business_of_the_leader(desk: LedDesk) -> None:
    bob, alice = desk.filtering(), desk.attach()
    subscribe(desk, alice, 1, "N == 2", subject=NORTHERN)
    (change,) = desk.changes()
    desk.give(InterestEffective(tuple(change.added)))
    assert done(desk, alice) == [1]
    assert len(desk.received(bob, Filters)) == 1
    subscribe(desk, alice, 2, "N == 3", subject=OWN)
    assert done(desk, alice) == [1, 2]


def test_an_agent_that_may_not_publish_a_subject_asks_no_leader() -> None:
    desk = LedDesk()
    desk.config = type(desk.config)(server="south", domain="example.org", may_publish={BOB: (OWN,)})
    desk.restart()
    desk.link_to_leader(1)
    assert requested(desk, publisher(desk), 1, NORTHERN).expressions is None
    assert desk.sent == []


def test_a_server_asks_for_a_bounded_number_of_subjects(desk: LedDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_filters, "LEASES_MAX", 1)
    bob = desk.filtering()
    assert requested(desk, bob, 2, "Up").expressions is None
    assert len(desk.asked()) == 1


def test_nothing_is_kept_of_leases_that_have_run_out(desk: LedDesk) -> None:
    bob = desk.filtering()
    desk.close(bob)
    desk.later(RETRY_S + LEASE_S)
    desk.give()
    desk.broker._filters.sweep()
    filters = desk.broker._filters
    assert not filters._wanted._by_subject
    assert not any(vars(filters)[name] for name in ("_filters", "_subjects", "_links_of"))
    assert not filters.waiting
    assert not desk.broker._filters.leaders._leases


def test_nothing_is_kept_of_requests_that_nobody_waits_for(desk: LedDesk) -> None:
    desk.link_to_leader(None)
    bob = publisher(desk)
    desk.send(bob, RequestFilters(1, NORTHERN))
    desk.broker._filters.sweep()
    assert desk.broker._filters.leaders._leases
    desk.close(bob)
    desk.broker._filters.sweep()
    assert not desk.broker._filters.leaders._leases


def test_a_device_that_is_removed_keeps_its_lease(desk: LedDesk) -> None:
    """The device may not have noticed that its link was dropped (SPEC U-03)."""
    desk.filtering()
    other = desk.attach(BOB, "desk")
    desk.send(other, Kick(1, BOB, "sensor", True))
    desk.leader_sends(2, "N == 2")
    assert desk.confirmed() == [1]
    desk.later(LEASE_S)
    assert desk.confirmed() == [1, 2]


def test_attach_without_filtering_changes_nothing_for_the_leader(desk: LedDesk) -> None:
    link = desk.open(BOB, "sensor")
    desk.send(link, Attach(1, "default", None, True))
    assert desk.sent == []
