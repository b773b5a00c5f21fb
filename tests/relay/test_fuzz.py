"""The fuzzer of a relay's inputs, in short; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

import pytest

from fuzz import __main__ as command
from fuzz import ng, target_runs
from tests.short_fuzz import check_run, short_run
from wanderbus.relay import Relay
from wanderbus.relay import bencode as notation
from wanderbus.relay.ports import PortPool

INPUTS = 1_000
BY_NAME = {target.name: target for target in ng.TARGETS}


def run(name: str, inputs: int = INPUTS) -> target_runs.Tally:
    return short_run(BY_NAME[name], inputs)


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_both_ways_are_gone(name: str) -> None:
    tally = run(name)
    check_run(tally, INPUTS)


def test_the_command_knows_it() -> None:
    assert command.NAMES["ng"] is ng.TARGETS


def test_conversations_carry_datagrams_and_end_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the fuzzer would test only the first checks of the relay."""
    relays: list[Relay] = []
    made = Relay

    def remembered(*given: object, **more: object) -> Relay:
        relays.append(made(*given, **more))  # type: ignore[arg-type]
        return relays[-1]

    monkeypatch.setattr(ng, "Relay", remembered)
    run("ng-conversation")
    for name in ("calls", "refused", "reclaimed", "repeated", "unreadable"):
        assert sum(getattr(relay.counters, name) for relay in relays) > 10, name
    for name in ("datagrams", "unknown_source", "nowhere", "learnt"):
        assert sum(getattr(relay.figures, name) for relay in relays) > 10, name


@pytest.mark.parametrize(
    ("name", "sabotage"),
    [
        ("ng-bencode", lambda patch: patch.setattr(notation, "_paired", lambda items, end: dict(items))),
        ("ng-sdp", lambda patch: patch.setattr(ng, "rewritten", lambda text, *given, **more: text)),
        ("ng-conversation", lambda patch: patch.setattr(PortPool, "give_back", lambda self, port: None)),
        ("ng-conversation", lambda patch: patch.setattr(Relay, "_sweep", lambda self, now, outputs: None)),
    ],
)
def test_faults_are_detected(name: str, sabotage: object, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage(monkeypatch)  # type: ignore[operator]
    assert run(name, 300).failures
