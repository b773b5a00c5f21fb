"""The fuzzer of what other domains give, in short; it finds inserted faults (DESIGN 9)."""

from __future__ import annotations

import pytest

from fuzz import __main__ as command
from fuzz import federation, routed, target_runs
from tests.short_fuzz import check_run, short_run
from wanderbus.federation import gateway
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.routed.links import RoutedLinks
from wanderbus.federation.routed.messages import Passed

INPUTS = 600
BY_NAME = {target.name: target for target in (*federation.TARGETS, *routed.TARGETS)}


def run(name: str, inputs: int = INPUTS) -> target_runs.Tally:
    return short_run(BY_NAME[name], inputs)


@pytest.mark.parametrize("name", BY_NAME)
def test_input_of_other_domains(name: str) -> None:
    check_run(run(name), INPUTS, least=50 if name == "gateway" else 10)


def test_part_of_the_command() -> None:
    assert command.NAMES["federation"] is federation.TARGETS
    assert command.NAMES["routed"] is routed.TARGETS


def test_paths_that_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    on_passed = RoutedLinks._on_passed

    def careless(self: RoutedLinks, domain: str, message: Passed, now: float) -> None:
        if message.place + 1 < len(message.path) and message.path[message.place + 1] in self._direct:
            self._to_neighbour(message.path[message.place + 1], message)
        else:
            on_passed(self, domain, message, now)

    monkeypatch.setattr(RoutedLinks, "_on_passed", careless)
    assert run("routed-links").failures


def test_lives_that_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilterRouting, "_check_epoch", lambda routing, epoch: None)
    assert run("gateway").failures


def test_reasons_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "shown", lambda text: text)
    assert run("gateway").failures
