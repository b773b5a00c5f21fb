"""The fuzzer of lightweight clients and their door, in short."""

from __future__ import annotations

import pytest

from fuzz import __main__ as command
from fuzz import light
from tests.short_fuzz import check_run, short_run

INPUTS = 1_000
BY_NAME = {target.name: target for target in light.TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_breaks_and_some_inputs_are_accepted(name: str) -> None:
    check_run(short_run(BY_NAME[name], INPUTS), INPUTS)


def test_the_command_knows_it() -> None:
    assert command.NAMES["light"] is light.TARGETS
