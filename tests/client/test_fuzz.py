"""The fuzzer of the messages from a broker to its agent, in short; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import __main__ as command
from fuzz import agent, target_runs
from tests.short_fuzz import check_run, short_run
from wanderbus.client.machine.answer_checks import Question
from wanderbus.client.machine.subscription_readers import Unacknowledged
from wanderbus.protocol import presentation

INPUTS = 1_000
BY_NAME = {target.name: target for target in agent.TARGETS}


def run(name: str, inputs: int = INPUTS) -> target_runs.Tally:
    return short_run(BY_NAME[name], inputs)


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_both_ways_are_gone(name: str) -> None:
    tally = run(name)
    check_run(tally, INPUTS)


def test_the_command_knows_it() -> None:
    assert command.NAMES["agent"] is agent.TARGETS


def test_events_that_are_not_checked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presentation, "_checked", lambda event: event)
    assert run("agent-conversation").failures


def test_answers_that_are_not_checked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(question: Question, answer: Any, size: int) -> tuple[Any, ...]:
        return tuple(getattr(answer, "subscriptions", ()))

    monkeypatch.setattr(Question, "whole", whole)
    assert run("agent-conversation", 4_000).failures


def test_memory_without_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Unacknowledged.add

    def unbounded(unacknowledged: Unacknowledged, *arguments: Any) -> None:
        unacknowledged._bytes_max = 2**62
        add(unacknowledged, *arguments)

    monkeypatch.setattr(Unacknowledged, "add", unbounded)
    monkeypatch.setattr(agent, "UNTAKEN_BYTES_MAX", 500)
    assert run("agent-conversation").failures


def test_rows_that_are_not_checked_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "read_rows", lambda kind, what, rows: [kind(**row) for row in rows])
    assert run("agent-rows").failures
