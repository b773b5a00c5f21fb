"""Worlds of the mobility matrix: each change once, in turns of the columns, and sabotages that they notice (U-09)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.test_moving_worlds import ask_no_other_domain, pass_over_nothing
from wanderbus.broker.history import catch_up
from wanderbus.broker.state.exported_session import ExportedSession
from wanderbus.peers.handover.draining import Draining
from wanderbus.simulation.matrix.cells import CELLS, Change, Path
from wanderbus.simulation.matrix.device import MatrixDevice
from wanderbus.simulation.matrix.scenario import MatrixScenario
from wanderbus.simulation.relay.relay_host import RelayHost
from wanderbus.sip.proxy.domain_crossing import DomainCrossing
from wanderbus.sip.proxy.domain_servers import NotFound

Patch = pytest.MonkeyPatch

ROW = len(CELLS) // len(Change)
"""Number of cells of each change."""

FEW = [place * ROW + 7 * place % ROW for place in range(len(Change))]
"""A seed for each change: seven is no divisor of a row, so the changes have different columns and activities."""


@pytest.mark.parametrize("seed", FEW, ids=[str(CELLS[seed]) for seed in FEW])
def test_u09_each_event_comes_once_in_order_in_both_directions(seed: int) -> None:
    found = MatrixScenario.run_seed(seed)
    assert found.problems == []
    assert found.counts["notifications"] == 2 * found.counts["events"] >= 2 * 15
    assert bool(found.counts["relayed"]) == (CELLS[seed].path is not Path.DIRECT)


def test_the_few_have_each_change_column_and_activity() -> None:
    cells = [CELLS[seed] for seed in FEW]
    assert [cell.change for cell in cells] == [*Change]
    assert {cell[1:3] for cell in cells} == {cell[1:3] for cell in CELLS}
    assert {cell.activity for cell in cells} == {cell.activity for cell in CELLS}


def read_again(patch: Patch) -> None:
    patch.setattr(catch_up, "is_read", lambda event, cuts, *, decentralised: False)


def move_nothing(patch: Patch) -> None:
    patch.setattr(Draining, "go_on", lambda self, now: None)


def move_no_channel(patch: Patch) -> None:
    patch.setattr(MatrixDevice, "ask", lambda self, request: None)


def answer_past_the_relay(patch: Patch) -> None:
    patch.setattr("wanderbus.sip.proxy.response_forwarding.describes", lambda message: False)


def relay_no_connection(patch: Patch) -> None:
    patch.setattr(RelayHost, "_forward", lambda self, given: None)


def do_nothing_meanwhile(patch: Patch) -> None:
    patch.setattr(MatrixScenario, "_begin_activity", lambda self: None)


def take_no_answers_along(patch: Patch) -> None:
    patch.setattr(
        "wanderbus.peers.handover.far_export.ExportedSession",
        lambda **fields: ExportedSession(**{**fields, "publishers": ()}),
    )


def send_no_update_to_other_domains(patch: Patch) -> None:
    prepared = DomainCrossing.prepared

    def only_first(self: DomainCrossing, passage: Any, now: float) -> Any:
        is_update = passage.came.request.method == "INVITE" and passage.came.request.to.tag
        return NotFound(404, "No Route To This Domain") if is_update else prepared(self, passage, now)

    patch.setattr(DomainCrossing, "prepared", only_first)


def follow_to_no_domain(patch: Patch) -> None:
    patch.setattr("wanderbus.mobility.session.uac_invite.service_elsewhere", lambda response, service: "")


@pytest.mark.parametrize(
    ("sabotage", "name", "problem"),
    [
        (read_again, "server-changed/udp/direct/publishing", "out of order"),
        (move_nothing, "server-drained/tcp/direct/idle", "the mover's session is not at"),
        (move_no_channel, "channel-moved/udp/direct/idle", " leads the channel, says "),
        (answer_past_the_relay, "into-nat/udp/relay/idle", "mover: sends to"),
        (relay_no_connection, "new-address/tcp/relay/idle", "not begun"),
        (pass_over_nothing, "domain-changed/udp/direct/publishing", "mover: notifications came out of order"),
        (ask_no_other_domain, "domain-and-both-ends/udp/direct/publishing", "mover: lost ["),
        (take_no_answers_along, "domain-and-port/udp/direct/publishing", " was published twice"),
        (send_no_update_to_other_domains, "domain-changed/udp/direct/idle", "not heard of in the other domain"),
        (follow_to_no_domain, "domain-changed/udp/direct/idle", "mover: sends to None"),
        (do_nothing_meanwhile, "port-rebound/udp/direct/draining", "the mover is not draining at the change"),
    ],
)
def test_a_broken_cell_is_noticed(
    monkeypatch: Patch, sabotage: Callable[[Patch], None], name: str, problem: str
) -> None:
    seed = [str(cell) for cell in CELLS].index(name)
    sabotage(monkeypatch)
    found = MatrixScenario.run_seed(seed).problems
    assert any(problem in each for each in found), found
