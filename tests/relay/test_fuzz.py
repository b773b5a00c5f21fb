"""The fuzzer of a relay's inputs, in short; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

import time

import pytest

from fuzz import __main__ as command
from fuzz import ng, target_runs
from wanderbus.relay import Relay
from wanderbus.relay import bencode as notation
from wanderbus.relay.ports import PortPool

INPUTS = 1_000
CPU_S_MAX = 1.0
"""Guard against endless loops; `./do fuzz` checks the promised bound."""
BY_NAME = {target.name: target for target in ng.TARGETS}


def run(name: str, inputs: int = INPUTS) -> target_runs.Tally:
    return target_runs.run(BY_NAME[name], inputs, seed=7, until=time.monotonic() + 60, jobs=1, cpu_s_max=CPU_S_MAX)


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_both_ways_are_gone(name: str) -> None:
    tally = run(name)
    assert [(failure.kind, failure.detail) for failure in tally.failures] == []
    assert tally.inputs == INPUTS
    assert INPUTS / 10 < tally.accepted < INPUTS * 9 / 10


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
