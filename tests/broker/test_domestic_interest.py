"""Interest of the users of a server, as the gateways to other domains get it (SPEC M-01, decision 0161)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.broker.access_desk import NORTHERN, AccessDesk
from tests.broker.desk import ALICE, SUBJECT, Desk
from tests.broker.test_awaited_sessions import KEY, Access, awaiting, exported, fence, server
from tests.broker.test_foreign_domains import foreign, wanted
from tests.broker.test_server_sessions import Hub
from wanderbus.broker.messages import DomesticInterestChanged
from wanderbus.broker.servers.foreign_messages import ForeignInterestAsked, ForeignInterestEffective
from wanderbus.broker.sessions.handover_messages import AwaitedEffective, ForgetAwaited, ImportSession, SessionOwned
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Renew, Subscribe, Unsubscribe
from wanderbus.subscription import PATTERN

PAIR = f"pattern pair match A: {SUBJECT} (N == 1) then B: {NORTHERN} (N == 2) within 10 seconds"


class _Reports:
    """Mixed into a desk: applies the reported changes, and keeps each."""

    def start(self) -> None:
        self.interest: dict[str, list[tuple[str, str]]] = {}
        """Subject and expression of each entry of the reported subscriptions."""
        self.reports: list[DomesticInterestChanged] = []
        super().start()  # type: ignore[misc]

    def perform(self, outputs: Sequence[Output]) -> None:
        for each in outputs:
            if isinstance(each, DomesticInterestChanged):
                self.reports.append(each)
                assert not each.added.keys() & self.interest.keys(), "reported twice"
                for name in each.removed:
                    del self.interest[name]
                for name, entries in each.added.items():
                    self.interest[name] = [(subject, interest.text) for subject, interest in entries]
        super().perform(outputs)  # type: ignore[misc]


class Alone(_Reports, Hub):
    """A server without others."""


class Domestic(_Reports, Access):
    """A server in a domain of several; ``north`` is another one."""


def config(**options: object) -> BrokerConfig:
    """Return the settings of a server whose domain is connected with others."""
    return BrokerConfig(server="south", domain="example.org", federated=True, **options)  # type: ignore[arg-type]


@pytest.fixture(params=[Alone, Domestic])
def desk(request: pytest.FixtureRequest) -> Desk:
    kind: type[Desk] = request.param
    return kind(config())


def reported(desk: Desk) -> dict[str, list[tuple[str, str]]]:
    """The interest that was reported, and has not ended."""
    assert isinstance(desk, _Reports)
    return desk.interest


def test_reports_of_a_subscription_that_begins_ends_and_lives_again(desk: Desk) -> None:
    alice = desk.attach()
    subscription = desk.subscribed(alice, "N > 1")
    desk.subscribed(alice, "N > 1")
    assert reported(desk) == {subscription.id: [(SUBJECT, "N > 1")]}
    desk.send(alice, Unsubscribe(8, subscription.id))
    assert reported(desk) == {}
    desk.send(alice, Renew(9, subscription.id, None, None))
    assert reported(desk) == {subscription.id: [(SUBJECT, "N > 1")]}


def test_reports_of_a_subscription_that_expires(desk: Desk) -> None:
    desk.subscribed(desk.attach(), lifetime_s=10.0)
    assert len(reported(desk)) == 1
    desk.later(100.0)
    assert reported(desk) == {}


def test_a_report_follows_the_record(desk: Desk) -> None:
    alice = desk.attach()
    desk.held = True
    desk.send(alice, Subscribe(5, SUBJECT, "", None, (), False))
    assert reported(desk) == {}
    desk.sync()
    assert len(reported(desk)) == 1


def test_every_entry_of_a_pattern(desk: Desk) -> None:
    pattern = desk.subscribed(desk.attach(), PAIR, subject="", language=PATTERN)
    assert reported(desk) == {pattern.id: [(SUBJECT, "N == 1"), (NORTHERN, "N == 2")]}


@pytest.mark.parametrize("with_rows", [False, True])
def test_subscriptions_of_earlier_lives_are_reported_at_the_start(desk: Desk, with_rows: bool) -> None:
    subscription = desk.subscribed(desk.attach(), "N > 1")
    ended = desk.subscribed(desk.attach(device="tablet"), "N > 2")
    desk.send(desk.attach(device="tablet"), Unsubscribe(8, ended.id))
    desk.save()
    desk.restart(with_rows=with_rows)
    assert reported(desk) == {subscription.id: [(SUBJECT, "N > 1")]}
    assert isinstance(desk, _Reports)
    assert len(desk.reports) == 1


def test_subscriptions_of_servers_and_foreign_domains_are_left_out() -> None:
    desk = Alone(config())
    desk.subscribed(desk.server())
    wanted(desk, foreign(desk))
    desk.restart()
    assert desk.reports == []


def test_nothing_is_reported_unless_the_domain_is_federated() -> None:
    for desk in (Alone(), Domestic()):
        desk.subscribed(desk.attach())
        assert desk.reports == []


# Sessions that move --------------------------------------------------------------------------------------------------


def test_a_session_that_moves_is_reported_there_before_it_ends_here() -> None:
    source, target = Domestic(config()), Domestic(config())
    subscription = source.subscribed(source.attach(), "N > 1")
    awaiting(target, subscription)
    assert target.of_kind(AwaitedEffective)
    assert source.interest == target.interest == {subscription.id: [(SUBJECT, "N > 1")]}
    source.held = True
    fence(source)
    assert source.interest, "the fence may be lost"
    source.sync()
    assert source.interest == {}
    target.give(ImportSession(exported(source)))
    assert target.of_kind(SessionOwned)
    assert target.interest == {subscription.id: [(SUBJECT, "N > 1")]}
    assert len(target.reports) == 1
    target.restart()
    assert target.interest == {subscription.id: [(SUBJECT, "N > 1")]}


def test_an_awaited_session_counts_across_a_restart_until_it_stays_where_it_is() -> None:
    source, target = server("south"), Domestic(config())
    subscription = source.subscribed(source.attach(), "N > 1")
    awaiting(target, subscription)
    target.restart()
    assert set(target.interest) == {subscription.id}
    target.give(ForgetAwaited(ALICE, "default"))
    assert target.interest == {}


def test_an_awaited_subscription_that_has_ended_before_its_session_came() -> None:
    source, target = Domestic(config()), Domestic(config())
    alice = source.attach()
    first, second = source.subscribed(alice, "N > 1"), source.subscribed(alice, "N > 2")
    awaiting(target, first, second)
    source.send(alice, Unsubscribe(9, first.id))
    fence(source)
    target.give(ImportSession(exported(source)))
    assert set(target.interest) == {second.id}
    assert KEY in target.broker.state.sessions


def test_reports_of_a_session_beside_the_interest_at_leaders() -> None:
    desk = Domestic(config())
    subscription = desk.subscribed(desk.attach(), subject=NORTHERN)
    assert isinstance(desk, AccessDesk)
    assert [list(change.added) for change in desk.changes()] == [[f"{subscription.id} 1"]]
    assert set(desk.interest) == {subscription.id}


class Asking(Alone):
    """A server that keeps the names for which it asks when they count in other domains."""

    def start(self) -> None:
        self.asked: list[str] = []
        super().start()

    def perform(self, outputs: Sequence[Output]) -> None:
        self.asked += [each.name for each in outputs if isinstance(each, ForeignInterestAsked)]
        super().perform(outputs)


def everywhere(request: int) -> Subscribe:
    """A request for a subscription that is to count in other domains."""
    return Subscribe(request, SUBJECT, "", None, (), this_device_only=False, everywhere=True)


def test_m02_an_answer_about_other_domains_waits_until_they_know_the_subscription() -> None:
    desk = Asking(config())
    alice = desk.attach()
    desk.send(alice, everywhere(1), everywhere(2))
    assert (len(desk.asked), desk.received(alice, Done)) == (1, [])
    assert list(desk.broker.diagnostics.waiting()) == ["subscriptions"]
    desk.give(ForeignInterestEffective((*desk.asked, "unknown")))
    assert [each.request for each in desk.received(alice, Done)] == [1, 2]
    assert desk.broker.diagnostics.waiting() == {}


def test_m02_the_end_of_a_subscription_ends_the_wait_for_other_domains() -> None:
    desk = Asking(config())
    alice, other = desk.attach(), desk.attach(device="tablet")
    desk.send(alice, everywhere(1))
    (subscription,) = desk.broker.state.subscriptions
    desk.send(other, Unsubscribe(2, subscription))
    assert [each.request for each in desk.received(alice, Done)] == [1]


def test_m02_without_other_domains_nothing_is_asked() -> None:
    desk = Asking(BrokerConfig(server="south", domain="example.org"))
    alice = desk.attach()
    desk.send(alice, everywhere(1))
    assert ([each.request for each in desk.received(alice, Done)], desk.asked) == ([1], [])
