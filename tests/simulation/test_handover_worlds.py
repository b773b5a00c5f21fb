"""Seeded worlds whose sessions move between servers: each event once, and a missing safeguard is noticed (SPEC L)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.engine import matched_delivery
from wanderbus.broker.history import catch_up
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.publish import delivery
from wanderbus.broker.publish.former_servers import FormerServers
from wanderbus.broker.rollback.attachments import Attachments
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.sessions.awaited_sessions import AwaitedSessions
from wanderbus.broker.sessions.handover import Handover
from wanderbus.broker.sessions.handover_messages import DropExport, HeadFound, SessionExported
from wanderbus.broker.sessions.turned_away import TurnedAway
from wanderbus.broker.state import replays, session_moves
from wanderbus.broker.state import state as state_module
from wanderbus.broker.state.exported_session import ExportedSession, export_session
from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.handover.arriving_sessions import ArrivingSessions
from wanderbus.peers.handover.leaving_sessions import LeavingSessions
from wanderbus.peers.handover.messages import MoveAwaited, MoveTaken, MoveWithdrawn
from wanderbus.protocol import SESSION_MOVED
from wanderbus.records import AnyRecord, Cut, Started
from wanderbus.simulation.handover.scenario import HandoverScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 25)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [HandoverScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    failed = [each for each in results if each.problems]
    replays = [replay_command(Layer.HANDOVER, each.seed) for each in failed]
    assert [(replay, each.problems) for replay, each in zip(replays, failed, strict=True)] == []


def test_two_dozen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("servers", 60),
        ("subscriptions", 150),
        ("events", 4_000),
        ("notifications", 8_000),
        ("requested", 90),
        ("moves", 30),
        ("pieces", 100),
        ("roamed", 10),
        ("visits", 20),
        ("replies", 700),
        ("held_back", 200),
        ("crashes", 35),
        ("breaks", 12),
        ("partitions", 10),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (HandoverScenario(3, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def pass_over_nothing_in_the_log(patch: Patch) -> None:
    patch.setattr(catch_up, "is_read", lambda event, cuts, *, decentralised: False)


def take_arrivals_from_before_the_cut(patch: Patch) -> None:
    for module in (delivery, matched_delivery):
        patch.setattr(module, "is_read", lambda event, cuts, *, decentralised: False)


def begin_at_the_end_of_the_log(patch: Patch) -> None:
    handed_over = replays.handed_over

    def from_now_on(state: BrokerState, row: Any, cuts: Any, first: int) -> None:
        handed_over(state, row, cuts, state.offset)

    patch.setattr(session_moves, "handed_over", from_now_on)


def fence_without_waiting_for_the_heads(patch: Patch) -> None:
    patch.setattr(Handover, "_has_all", lambda self, session, heads: True)


def fence_without_what_was_sent_directly(patch: Patch) -> None:
    has_all = Handover._has_all

    def only_ordered(self: Handover, session: Any, heads: Any) -> bool:
        return has_all(self, session, [msgspec.structs.replace(each, direct=0) for each in heads])

    patch.setattr(Handover, "_has_all", only_ordered)


def read_the_past_apart(patch: Patch) -> None:
    patch.setattr(catch_up.CatchUp, "_together", lambda self, session, row: [row])


def begin_live_while_the_others_read(patch: Patch) -> None:
    patch.setattr(state_module, "read_behind", lambda state, row: None)


def say_that_nothing_was_sent(patch: Patch) -> None:
    head_found = LeavingSessions.head_found

    def nothing(self: LeavingSessions, found: HeadFound) -> None:
        head = msgspec.structs.replace(found.head, number=0, direct=0)
        head_found(self, msgspec.structs.replace(found, head=head))

    patch.setattr(LeavingSessions, "head_found", nothing)


def cut_both_models_at_one_number(patch: Patch) -> None:
    cuts = Handover._cuts

    def at_the_later(self: Handover, heads: Any) -> tuple[Cut, ...]:
        latest = [max(each.ordered, each.decentralised) for each in cuts(self, heads)]
        return tuple([Cut(each, each) for each in latest])

    patch.setattr(Handover, "_cuts", at_the_later)


def cut_at_the_heads(patch: Patch) -> None:
    cuts = Handover._cuts

    def at_the_heads(self: Handover, heads: Any) -> tuple[Cut, ...]:
        first, *_ = cuts(self, heads)
        return (first, *(Cut(each.end, each.end) for each in heads))

    patch.setattr(Handover, "_cuts", at_the_heads)


def want_nothing_before_the_import(patch: Patch) -> None:
    patch.setattr(AwaitedSessions, "_add", lambda self, subscriptions: None)


def be_ready_at_once(patch: Patch) -> None:
    patch.setattr(InterestRequests, "when_effective", lambda self, subscription, link, answer, **how: answer())


def be_ready_while_publishers_hold_back(patch: Patch) -> None:
    report = AwaitedSessions._report_when_effective

    def unfiltered(self: AwaitedSessions, given: Any) -> None:
        filters, self._filters = self._filters, _Used()  # type: ignore[assignment]
        report(self, given)
        self._filters = filters

    patch.setattr(AwaitedSessions, "_report_when_effective", unfiltered)
    patch.setattr(PublisherFilters, "when_used", lambda self, subscriptions, answer: answer())


class _Used:
    """Filters that every agent uses at once."""

    def when_used(self, subscriptions: Sequence[Any], answer: Callable[[], None]) -> None:
        answer()


def forget_the_awaited_in_a_restart(patch: Patch) -> None:
    apply_record = BrokerState.apply

    def applied(self: BrokerState, offset: int, record: AnyRecord) -> None:
        apply_record(self, offset, record)
        if isinstance(record, Started):
            for key in list(self.awaited):
                self.awaited.drop(key)

    patch.setattr(BrokerState, "apply", applied)


def drop_the_export_at_once(patch: Patch) -> None:
    exported = LeavingSessions.exported

    def forgetful(self: LeavingSessions, given: SessionExported) -> None:
        exported(self, given)
        self._emit(DropExport(given.user, given.session))

    patch.setattr(LeavingSessions, "exported", forgetful)


def keep_the_export(patch: Patch) -> None:
    received = LeavingSessions.received

    def deaf(self: LeavingSessions, server: str, message: Any) -> None:
        if not isinstance(message, MoveTaken):
            received(self, server, message)

    patch.setattr(LeavingSessions, "received", deaf)


def leave_the_publishes_behind(patch: Patch) -> None:
    def without(*arguments: Any) -> ExportedSession:
        return msgspec.structs.replace(export_session(*arguments), publishers=())

    patch.setattr(session_moves, "export_session", without)


def keep_the_publishes_at_the_source(patch: Patch) -> None:
    patch.setattr(session_moves, "move_publishes", lambda state, user, device: None)


def serve_behind_the_fence(patch: Patch) -> None:
    attach_refusal = Attachments._attach_refusal

    def here_too(self: Attachments, link: Any, name: str) -> Any:
        refusal = attach_refusal(self, link, name)
        return None if refusal is not None and refusal.limit == SESSION_MOVED else refusal

    patch.setattr(Attachments, "_attach_refusal", here_too)


def offer_no_further_subscription(patch: Patch) -> None:
    patch.setattr(Handover, "_unknown_to_target", lambda self, session, given: 0)


def withdraw_in_silence(patch: Patch) -> None:
    send = LeavingSessions._send

    def without(self: LeavingSessions, server: str, message: Any) -> None:
        if not isinstance(message, MoveWithdrawn):
            send(self, server, message)

    patch.setattr(LeavingSessions, "_send", without)


def ask_for_no_awaited_session(patch: Patch) -> None:
    send = ArrivingSessions._send

    def without(self: ArrivingSessions, server: str, message: Any) -> None:
        if not isinstance(message, MoveAwaited):
            send(self, server, message)

    patch.setattr(ArrivingSessions, "_send", without)


def send_no_export_again(patch: Patch) -> None:
    patch.setattr(LeavingSessions, "_left_for", lambda self, server: iter(()))


def repeat_nothing_on_a_new_link(patch: Patch) -> None:
    patch.setattr(LeavingSessions, "link_opened", lambda self, server: None)


def give_heads_before_the_engine_has_matched(patch: Patch) -> None:
    give = Handover._give_heads

    def at_once(self: Handover) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._engine_events, "has_matched", lambda offset: True)
            give(self)

    patch.setattr(Handover, "_give_heads", at_once)


def leave_links_open_at_the_fence(patch: Patch) -> None:
    patch.setattr(TurnedAway, "close", lambda self, session: None)


def ask_no_former_server(patch: Patch) -> None:
    patch.setattr(FormerServers, "attached", lambda self, link, was_at: self._state.server)


def forget_that_a_device_has_gone(patch: Patch) -> None:
    patch.setattr(session_moves, "_go", lambda state, key, server: None)


def take_over_no_publishes(patch: Patch) -> None:
    patch.setattr(session_moves, "_add_publisher", lambda state, key, row: None)


def publish_before_the_past_is_here(patch: Patch) -> None:
    after_past = DecentralisedEvents.after_past

    def at_once(self: DecentralisedEvents, source: str, past: Any, done: Any) -> None:
        if "_learn" in repr(done):
            done()
        else:
            after_past(self, source, past, done)

    patch.setattr(DecentralisedEvents, "after_past", at_once)


def ask_one_former_server(patch: Patch) -> None:
    learn = FormerServers._learn

    def alone(self: FormerServers, link: Any, given: Any) -> None:
        past = msgspec.structs.replace(given.past, next_server="")
        learn(self, link, msgspec.structs.replace(given, past=past))

    patch.setattr(FormerServers, "_learn", alone)


def keep_the_link_of_a_device_that_has_gone(patch: Patch) -> None:
    patch.setattr(TurnedAway, "close_device", lambda self, user, device: None)


def let_sessions_cross(patch: Patch) -> None:
    patch.setattr(LeavingSessions, "__contains__", lambda self, key: False)


SABOTAGES: list[tuple[Callable[[Patch], None], str, tuple[int, ...]]] = [
    (pass_over_nothing_in_the_log, " twice", (1, 2)),
    (take_arrivals_from_before_the_cut, " twice", (4, 19)),
    (begin_at_the_end_of_the_log, " has missed ", (3, 4)),
    (fence_without_waiting_for_the_heads, " has missed ", (1,)),
    (fence_without_what_was_sent_directly, " has missed ", (102,)),
    (say_that_nothing_was_sent, " has missed ", (102,)),
    (cut_both_models_at_one_number, " has missed ", (49,)),
    (cut_at_the_heads, " twice", (2, 14)),
    (want_nothing_before_the_import, " has missed ", (3, 4)),
    (be_ready_at_once, " has missed ", (4,)),
    (be_ready_while_publishers_hold_back, " was held back", (4, 36)),
    (forget_the_awaited_in_a_restart, " still exports ", (13,)),
    (drop_the_export_at_once, " has missed ", (18, 36)),
    (keep_the_export, " still exports ", (1, 2)),
    (leave_the_publishes_behind, "was accepted as", (41,)),
    (keep_the_publishes_at_the_source, " still keeps the publishes ", (3, 4)),
    (serve_behind_the_fence, " has a gap ", (32,)),
    (offer_no_further_subscription, " has missed ", (64, 92)),
    (withdraw_in_silence, " still awaits ", (4, 10)),
    (ask_for_no_awaited_session, " still awaits ", (5, 15)),
    (send_no_export_again, " still exports ", (14,)),
    (repeat_nothing_on_a_new_link, " still ", (18,)),
    (give_heads_before_the_engine_has_matched, " has missed ", (23, 29)),
    (leave_links_open_at_the_fence, "KeyError", (1, 2)),
    (ask_no_former_server, " after a later one of ", (5, 11)),
    (forget_that_a_device_has_gone, "was accepted as", (5, 11)),
    (take_over_no_publishes, "was accepted as", (5, 35)),
    (publish_before_the_past_is_here, " after a later one of ", (161, 191)),
    (ask_one_former_server, "was accepted as", (5, 125)),
    (keep_the_link_of_a_device_that_has_gone, "was accepted as", (527,)),
    (let_sessions_cross, " still ", (5, 11)),
    (read_the_past_apart, " in two notifications, ", (1, 2)),
    (begin_live_while_the_others_read, " in two notifications, ", (87, 165)),
]


@pytest.mark.parametrize(
    ("break_product", "problem", "known"),
    SABOTAGES,
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], problem: str, known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(HandoverScenario.run_seed, known, problem)
