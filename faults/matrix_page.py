"""The page of the mobility matrix: a row for each change, with the results of its cells."""

from __future__ import annotations

from collections.abc import Container, Mapping
from itertools import product
from typing import Final

from harness import ROOT
from wanderbus.simulation.matrix.cells import Activity, Cell, Change, DataTransport, Path, obstacle

PAGE: Final = ROOT / "docs" / "matrix.md"

BEGIN: Final = "<!-- table -->\n"
END: Final = "<!-- end of table -->\n"

_NAT: Final = "tests/interop/nat"
_FAR: Final = "tests/api/test_far_handover.py"
REAL_TESTS: Final[Mapping[Change, str]] = {
    Change.NEW_ADDRESS: f"{_NAT}/test_matrix_rows.py::test_a_new_address",
    Change.PORT_REBOUND: f"{_NAT}/test_rebinding.py::test_while_sending",
    Change.INTO_NAT: f"{_NAT}/test_moves.py::test_nothing_is_lost",
    Change.OUT_OF_NAT: f"{_NAT}/test_moves.py::test_nothing_is_lost",
    Change.BETWEEN_NATS: f"{_NAT}/test_moves.py::test_nothing_is_lost",
    Change.BOTH_ENDS: f"{_NAT}/test_moves.py::test_both_move_at_once",
    Change.DEVICE_SWITCHED: f"{_NAT}/test_matrix_rows.py::test_another_device",
    Change.OFF_AND_ON: f"{_NAT}/test_matrix_rows.py::test_off_and_on",
    Change.SERVER_CHANGED: f"{_NAT}/test_matrix_rows.py::test_another_server",
    Change.SERVER_DRAINED: f"{_NAT}/test_matrix_rows.py::test_a_drained_server",
    Change.SERVER_KILLED: f"{_NAT}/test_restarts.py::test_server_and_relay_while_sending",
    Change.CHANNEL_MOVED: f"{_NAT}/test_matrix_rows.py::test_a_moved_channel",
    Change.DOMAIN_CHANGED: f"{_FAR}::test_l01_a_client_moves_its_session_to_another_domain_while_events_flow",
    Change.DOMAIN_AND_BOTH_ENDS: f"{_FAR}::test_u09_both_ends_have_new_addresses_while_a_session_leaves_its_domain",
    Change.DOMAIN_AND_PORT: f"{_NAT}/test_domain_rows.py::test_another_domain_and_port",
    Change.DOMAIN_AND_NAT: f"{_NAT}/test_domain_rows.py::test_another_domain_and_nat",
}
"""Tests of the rows with real processes in network namespaces; of two domains without NAT, with real sockets alone."""


def table(failed: Container[Cell]) -> str:
    """Return the table in Markdown; the cells in ``failed`` have failed, and all others passed."""
    columns = list(product(DataTransport, Path))
    heads = [f"{transport.upper()} {path}" for transport, path in columns]
    lines = [("change", *heads, "with real processes"), ("---",) * (len(heads) + 2)]
    for change in Change:
        cells = [_results([Cell(change, *column, activity) for activity in Activity], failed) for column in columns]
        lines.append((change.replace("-", " ").replace("nat", "NAT"), *cells, _link(REAL_TESTS[change])))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_table(page: str, failed: Container[Cell]) -> str:
    """Return ``page`` with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table(failed) + END + rest.partition(END)[2]


def _results(cells: list[Cell], failed: Container[Cell]) -> str:
    """Return the initials of the activities of a column of a change; those that fail are capitals."""
    if obstacle(cells[0]):
        return "-"
    return " ".join(_result(cell, cell in failed) for cell in cells)


def _result(cell: Cell, has_failed: bool) -> str:
    initial = cell.activity[0]
    return f"**{initial.upper()}**" if has_failed else initial


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name}](../{file})"
