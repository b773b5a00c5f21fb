"""Epochs say which numbers two copies of a stream have in common, and that another stream has none (decision 0108)."""

from __future__ import annotations

import pytest

from wanderbus.epochs import EPOCHS_MAX, in_common, with_epoch

OURS = ((100, 1), (300, 50), (500, 80))


@pytest.mark.parametrize(
    ("epoch", "number", "common"),
    [
        (100, 30, 30),
        (100, 60, 49),
        (300, 60, 60),
        (500, 90, 90),
        (200, 50, 49),
        (200, 70, 49),
        (400, 95, 79),
        (600, 90, 0),
        (90, 30, 0),
        (200, 30, 0),
        (400, 60, 0),
    ],
)
def test_a_number_is_shared_up_to_the_parting_and_that_of_another_server_is_not(
    epoch: int, number: int, common: int
) -> None:
    """The last rows are positions of another server, which gave its numbers in an epoch of its own."""
    assert in_common(OURS, epoch, number) == common


def test_a_position_of_a_forgotten_epoch_is_trusted() -> None:
    epochs: tuple[tuple[int, int], ...] = ()
    for number in range(EPOCHS_MAX + 8):
        epochs = with_epoch(epochs, 100 + number, 1 + 10 * number)
    assert len(epochs) == EPOCHS_MAX
    assert in_common(epochs, 101, 15) == 15
