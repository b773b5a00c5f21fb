"""Seeded worlds of decentralised channels: every promise holds, and a missing safeguard is noticed (SPEC K-04)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.noticing import is_noticed
from tests.simulation.pending_sabotage import EffectiveAtOnce
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import AdvertisementsChanged, SendOnLink
from wanderbus.broker.servers.advertisements import Advertisements
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.servers.route_index import RouteIndex
from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.state import state
from wanderbus.broker.state.decentralised_state import DecentralisedState
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.causal.header import Header
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX, DecentralisedChannels
from wanderbus.channels.interest import proxy_channels
from wanderbus.channels.interest.messages import ChangeForMany, InterestChanged
from wanderbus.channels.interest.outgoing_stream import OutgoingStream
from wanderbus.channels.interest.proxy_channels import ProxyChannels
from wanderbus.peers import decentralised_interest
from wanderbus.records import Started
from wanderbus.simulation.domains.decentralised_scenario import DecentralisedScenario
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 13)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [DecentralisedScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_a_dozen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("events", 500),
        ("notifications", 800),
        ("replies", 100),
        ("subscriptions", 80),
        ("crashes", 15),
        ("partitions", 4),
        ("advertisements", 20),
        ("not_advertised", 50),
        ("multicast", 20),
        ("repaired", 10),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (DecentralisedScenario(3, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def forget_what_arrived(patch: Patch) -> None:
    """Do not restore the cursor from the record of an arrival."""
    patch.setattr(DecentralisedState, "arrived", lambda self, record: self._is_behind())


def apply_records_twice(patch: Patch) -> None:
    patch.setattr(DecentralisedEvents, "_ahead", lambda self, outputs: None)


def keep_no_routes(patch: Patch) -> None:
    """Do not restore routes from their records."""
    patch.setattr(DecentralisedState, "route", lambda self, record: None)


def confirm_routes_that_are_not_used(patch: Patch) -> None:
    patch.setattr(RouteIndex, "change", lambda self, route, taken: None)


def answer_subscriptions_at_once(patch: Patch) -> None:
    patch.setattr(decentralised_interest, "Pending", EffectiveAtOnce)


def send_before_it_is_durable(patch: Patch) -> None:
    emit = Journal.emit

    def emitted(self: Journal, output: Any, size_bytes: int = 0) -> None:
        if isinstance(output, SendOnLink) and output.payload.startswith(CAUSAL_PREFIX):
            self.emit_now(output)
        else:
            emit(self, output, size_bytes)

    patch.setattr(Journal, "emit", emitted)


def send_directly_and_by_sessions(patch: Patch) -> None:
    """Let the sessions of servers get direct events, too."""
    patch.setattr(ServerUsers, "excluded", lambda self, publisher, *, is_direct: ())


def ignore_causes(patch: Patch) -> None:
    causes_at = Header.causes_at
    patch.setattr(Header, "causes_at", lambda self, server: causes_at(self, server)[:-1])


def leave_out_every_subject(patch: Patch) -> None:
    """Treat a subscription to every subject as one to an unknown subject."""
    patch.setattr(DecentralisedChannels, "concerns", lambda self, subject: subject != "*" and self.has(subject))


def publish_on_advertisements_that_do_not_count(patch: Patch) -> None:
    def follow(self: Any, touched: Any) -> None:
        _follow(self, touched)
        for row in self._state.advertisements.values():
            row.counts = True

    _follow = Advertisements._follow
    patch.setattr(Advertisements, "_follow", follow)


def forget_that_advertisements_counted(patch: Patch) -> None:
    """Let advertisements count again only when their leaders have confirmed them again."""

    def applied(self: Any, offset: int, record: Any) -> None:
        apply(self, offset, record)
        if isinstance(record, Started):
            for row in self.advertisements.values():
                row.counts = False

    apply = BrokerState.apply
    patch.setattr(BrokerState, "apply", applied)


def accept_what_is_not_advertised(patch: Patch) -> None:
    patch.setattr(Advertisements, "refusal", lambda self, user, event: None)


def spread_interest_everywhere(patch: Patch) -> None:
    patch.setattr(ProxyChannels, "_selects", lambda self, server, interest: True)


def spread_interest_in_the_same_subject_alone(patch: Patch) -> None:
    """Leave out interest in every subject, and advertisements of every subject."""
    overlap = proxy_channels.overlap
    patch.setattr(
        proxy_channels,
        "overlap",
        lambda one, other, lineage: one.subject == other.subject and overlap(one, other, lineage),
    )


def lose_advertisements_in_a_restart(patch: Patch) -> None:
    """Send no earlier advertisements to the leaders after a start."""

    def began(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self._journal._ready = [each for each in self._journal._ready if not isinstance(each, AdvertisementsChanged)]

    init = Advertisements.__init__
    patch.setattr(Advertisements, "__init__", began)


def confirm_routes_while_publishers_hold_back(patch: Patch) -> None:
    patch.setattr(PublisherFilters, "when_all_used", lambda self, answer: answer())


def repair_no_datagrams(patch: Patch) -> None:
    """Let links repeat only what they have carried before."""
    before = OutgoingStream._to_many

    def to_many(self: Any, multicast: Any, outputs: Any, now: float) -> Any:
        sent = before(self, multicast, outputs, now)
        for link in self._links.values():
            link.due = dict.fromkeys(link.due, float("inf"))
        return sent

    patch.setattr(OutgoingStream, "_to_many", to_many)


def confirm_datagrams_as_they_are_sent(patch: Patch) -> None:
    """Let a change that left as a datagram count."""
    before = OutgoingStream._to_many

    def to_many(self: Any, multicast: Any, outputs: Any, now: float) -> Any:
        sent = before(self, multicast, outputs, now)
        for link in self._links.values():
            if self.version in link.due:
                link.confirm(self.version)
        return sent

    patch.setattr(OutgoingStream, "_to_many", to_many)


def take_datagrams_for_other_servers(patch: Patch) -> None:
    def for_server(self: ChangeForMany, number: int) -> InterestChanged:
        previous = self.receivers[0][0]
        return InterestChanged(self.stream, self.incarnation, self.version, previous, self.added, self.removed)

    patch.setattr(ChangeForMany, "for_server", for_server)


def forget_arrivals_for_the_engine(patch: Patch) -> None:
    """Do not count arrivals among the events that wait for the engine, also after a restart."""
    patch.setattr(state, "accepted", lambda own, offset: None)


def leave_some_subjects_to_the_engine(patch: Patch) -> None:
    """Let the engine have a part of the decentralised events."""
    init = EngineEvents.__init__

    def made(self: Any, *arguments: Any) -> None:
        init(self, *arguments)
        self._has_every_subject = True

    patch.setattr(EngineEvents, "__init__", made)


@pytest.mark.parametrize(
    ("sabotage", "problem", "seeds"),
    [
        (forget_what_arrived, "differ in causal_counters", range(1, 4)),
        (apply_records_twice, "KeyError", range(1, 4)),
        (keep_no_routes, "differ in routes", range(1, 4)),
        (confirm_routes_that_are_not_used, "has missed", range(1, 4)),
        (answer_subscriptions_at_once, "has missed", range(11, 12)),
        (send_before_it_is_durable, "was not sent to it", range(21, 22)),
        (send_directly_and_by_sessions, "twice", range(1, 4)),
        (ignore_causes, "before its cause", range(1, 4)),
        (leave_out_every_subject, "has missed", range(1, 4)),
        (publish_on_advertisements_that_do_not_count, "has missed", range(12, 13)),
        (forget_that_advertisements_counted, "which is advertised", range(4, 5)),
        (accept_what_is_not_advertised, "which is not advertised", range(4, 5)),
        (spread_interest_everywhere, "has the interest of", range(6, 7)),
        (spread_interest_in_the_same_subject_alone, "has missed", range(4, 5)),
        (lose_advertisements_in_a_restart, "want it", range(4, 5)),
        (confirm_routes_while_publishers_hold_back, "was held back", range(3, 4)),
        (repair_no_datagrams, "that do not count", range(3, 4)),
        (confirm_datagrams_as_they_are_sent, "has missed", range(3, 4)),
        (take_datagrams_for_other_servers, "has the interest of", range(52, 53)),
        (forget_arrivals_for_the_engine, " is for ", range(25, 26)),
        (leave_some_subjects_to_the_engine, "after a later event", range(29, 30)),
    ],
)
def test_a_server_without_a_safeguard_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], problem: str, seeds: range
) -> None:
    sabotage(monkeypatch)
    assert is_noticed(DecentralisedScenario.run_seed, seeds, problem)
